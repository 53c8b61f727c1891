package transfer

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// problem is a refusal, as it is said on the wire (RFC 9457).
type problem struct {
	status int
	code   string
	detail string
	after  time.Duration // Retry-After; 0: none
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

func refused(status int, code, detail string) *problem {
	return &problem{status: status, code: code, detail: detail}
}

// busy asks to come again.
func busy(status int, code, detail string, after time.Duration) *problem {
	return &problem{status: status, code: code, detail: detail, after: after}
}

// problemOf is the one table of what errors are on the wire.
func problemOf(err error) *problem {
	var bad *invalid
	var own *problem
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return refused(http.StatusBadRequest, "invalid_message", bad.Error())
	case errors.Is(err, records.ErrInvalid):
		return refused(http.StatusBadRequest, "invalid_message", err.Error())
	case errors.Is(err, records.ErrNotFound):
		return refused(http.StatusNotFound, "flow_not_found", "there is no such data flow")
	case errors.Is(err, takeover.ErrNotServing):
		return busy(http.StatusServiceUnavailable, "not_serving", "this node takes nothing on now; ask another", time.Second)
	case errors.Is(err, records.ErrUnavailable):
		return busy(http.StatusServiceUnavailable, "store_unavailable", "the store cannot be reached; send the same request again", time.Second)
	case errors.Is(err, records.ErrFenced):
		return busy(http.StatusConflict, "flow_changed", "the data flow has changed meanwhile; read its status", time.Second)
	}
	return refused(http.StatusInternalServerError, "internal", "the request failed for a reason that is in this node's log")
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	body := map[string]any{
		"type": "about:blank", "title": http.StatusText(p.status), "status": p.status, "code": p.code, "detail": p.detail,
	}
	if p.after > 0 {
		seconds := max(1, int((p.after+time.Second-1)/time.Second))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		body["retry_after"] = seconds
	}
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone; nobody to tell
}
