package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// traits are what distinguishes a profile.
type traits struct {
	media        string
	serverErrors ServerError                                 // what OnServerError defaults to
	statuses     []override                                  // where they differ from kinds
	key          func(key string) (string, *problem)         // what is accepted as a key; nil: everything
	body         func(d document) any                        // the problem on the wire
	headers      func(h http.Header, d document)             // besides the usual ones, on problems; nil: none
	always       func(h http.Header, rt time.Duration)       // besides the usual ones, on every keyed answer; nil: none
	answered     func(h http.Header, status int, final bool) // besides the usual ones, on responses; nil: none
}

// override is a profile's own status of a problem.
type override struct {
	code   code
	status int
}

// profiles is every profile there is.
var profiles = map[Profile]traits{
	ProfileIETF: {
		media:        "application/problem+json",
		serverErrors: ServerErrorUnknown,
		body:         func(d document) any { return d },
	},
	// https://docs.stripe.com/api/idempotent_requests and /api/errors.
	ProfileStripe: {
		media:        "application/json",
		serverErrors: ServerErrorStore,
		statuses:     []override{{codeKeyReused, http.StatusBadRequest}},
		body:         stripeError,
		headers: func(h http.Header, d document) {
			h["Stripe-Should-Retry"] = []string{strconv.FormatBool(d.Retryable)}
		},
		answered: func(h http.Header, status int, final bool) {
			if status >= 500 { // if it is stored, another try says the same
				h["Stripe-Should-Retry"] = []string{strconv.FormatBool(!final)}
			}
		},
	},
	// The Iceberg REST catalog specification. A client takes a 409 for a
	// commit that failed, so what may have taken effect is never answered so.
	ProfileIceberg: {
		media:        "application/json",
		serverErrors: ServerErrorUnknown,
		statuses: []override{
			{codeInProgress, http.StatusServiceUnavailable},
			{codeOutcomeUnknown, http.StatusInternalServerError},
			{codeNotReplayable, http.StatusInternalServerError},
		},
		key:  icebergKey,
		body: icebergError,
		always: func(h http.Header, retention time.Duration) {
			h["Idempotency-Key-Lifetime"] = []string{ISODuration(retention)}
		},
	},
}

// status is the profile's status of a problem.
func (t traits) status(c code) int {
	for _, o := range t.statuses {
		if o.code == c {
			return o.status
		}
	}
	return kinds[c].status
}

func stripeError(d document) any {
	type object struct {
		Type         string `json:"type"`
		Code         string `json:"code"`
		Message      string `json:"message"`
		OperationRef string `json:"operation_ref,omitempty"`
	}
	o := object{Type: kinds[d.Code].stripe, Code: string(d.Code), Message: d.Detail, OperationRef: d.OperationRef}
	setDefault(&o.Message, d.Title)
	switch d.Code { //nolint:exhaustive // Stripe has its own name for these
	case codeInProgress:
		o.Code = "idempotency_key_in_use"
	case codeKeyReused:
		o.Code = "idempotency_error"
	}
	return map[string]object{"error": o}
}

func icebergError(d document) any {
	type object struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	}
	o := object{Message: d.Detail, Type: kinds[d.Code].iceberg, Code: d.Status}
	setDefault(&o.Message, d.Title)
	return map[string]object{"error": o}
}

// writeProblem answers with a problem. The headers that every keyed answer has
// are set already.
func writeProblem(w http.ResponseWriter, profile Profile, types string, p problem) {
	t := profiles[profile]
	d := p.document(types)
	d.Status = t.status(p.code)
	body, err := json.Marshal(t.body(d))
	if err != nil {
		panic(fmt.Sprintf("marshal problem: %v", err)) // made of strings and numbers only
	}
	h := w.Header()
	maps.Copy(h, p.headers)
	h["Content-Type"] = []string{t.media}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["Cache-Control"] = []string{"no-store"}
	if d.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(d.RetryAfter)}
	}
	if t.headers != nil {
		t.headers(h, d)
	}
	w.WriteHeader(d.Status)
	_, _ = w.Write(body) // a client that is gone is told nothing
}

// ISODuration writes a duration in the ISO 8601 form that Iceberg's
// idempotency-key-lifetime wants: hours, minutes and seconds, never weeks.
func ISODuration(d time.Duration) string {
	d = d.Truncate(time.Second)
	if d == 0 {
		return "PT0S"
	}
	b := []byte("PT")
	for _, part := range []struct {
		n    time.Duration
		unit byte
	}{{d / time.Hour, 'H'}, {d % time.Hour / time.Minute, 'M'}, {d % time.Minute / time.Second, 'S'}} {
		if part.n > 0 {
			b = append(strconv.AppendInt(b, int64(part.n), 10), part.unit)
		}
	}
	return string(b)
}
