package transfer

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
)

// answer is what a request is told.
type answer struct {
	status   int
	flow     records.Flow
	address  *DataAddress // of a pull that was started, or a push that was prepared
	replayed bool         // the flow was there before
	bare     bool         // nothing but the status
	full     bool         // with what we know besides
	owner    *records.HeldFlow
	other    any    // something else altogether
	stream   *Task  // the dataset's bytes themselves
	done     func() // to be called when they have been sent
}

// statusMessage is DataFlowStatusMessage, and with full our own members.
type statusMessage struct {
	MessageID   string       `json:"messageId,omitempty"`
	DataFlowID  string       `json:"dataFlowId"`
	State       string       `json:"state"`
	DataAddress *DataAddress `json:"dataAddress,omitempty"`
	Error       string       `json:"error,omitempty"`

	Wanted      string     `json:"wanted,omitempty"`
	Executor    string     `json:"executor,omitempty"`
	ExecutorURL string     `json:"executorUrl,omitempty"`
	Epoch       int64      `json:"epoch,omitempty"`
	Attempts    int        `json:"attempts,omitempty"`
	Bytes       *int64     `json:"bytes,omitempty"`
	TotalBytes  int64      `json:"totalBytes,omitempty"`
	SafeBytes   int64      `json:"safeBytes,omitempty"` // from where another would go on
	SHA256      string     `json:"sha256,omitempty"`
	CreatedAt   *time.Time `json:"createdAt,omitempty"`
	UpdatedAt   *time.Time `json:"updatedAt,omitempty"`
	Undelivered *pending   `json:"undelivered,omitempty"`
}

// pending is the oldest callback that could not be delivered yet.
type pending struct {
	Event string `json:"event"`
	Tries int    `json:"tries"`
	Error string `json:"error,omitempty"`
}

func (a *answer) message() statusMessage {
	f := a.flow
	m := statusMessage{DataFlowID: f.ID, State: string(f.State), DataAddress: a.address}
	if f.State == records.FlowTerminated || f.State == records.FlowSuspended {
		m.Error = f.Reason
	}
	if !a.full {
		m.MessageID = uuid.NewString()
		return m
	}
	m.Wanted, m.Attempts, m.Epoch = string(f.Wanted), f.Attempts, f.Epoch
	m.Bytes, m.TotalBytes, m.SHA256 = &f.Progress.Bytes, f.Progress.Total, hex.EncodeToString(f.Progress.SHA256)
	m.SafeBytes = offsetOf(f.Progress.Checkpoint)
	m.CreatedAt, m.UpdatedAt = &f.CreatedAt, &f.UpdatedAt
	if f.Executor != (records.ExecutorID{}) {
		m.Executor = f.Executor.String()
	}
	if h := a.owner; h != nil {
		if h.InProgress() {
			m.Executor, m.ExecutorURL, m.Epoch = h.Fence.Executor.String(), h.URL, h.Fence.Epoch
		}
		if c := h.Callback; c != nil {
			m.Undelivered = &pending{Event: c.Event, Tries: c.Tries, Error: c.Reason}
		}
	}
	return m
}

func (a *answer) write(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	if a.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if a.status == http.StatusAccepted {
		w.Header().Set("Location", "/dataflows/"+url.PathEscape(a.flow.ID)+"/status")
	}
	if a.bare {
		w.WriteHeader(a.status)
		return
	}
	var body any = a.message()
	if a.other != nil {
		body = a.other
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone; nobody to tell
}

// answering makes a handler of what answers, or says why it does not.
func (p *Plane) answering(f func(r *http.Request) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, err := f(r)
		if err == nil && a.stream != nil {
			defer a.done()
			p.fail(w, r, p.stream(r.Context(), w, r, *a.stream))
			return
		}
		if err == nil {
			a.write(w)
			return
		}
		refusal := problemOf(err)
		if refusal.status >= http.StatusInternalServerError {
			p.log.WarnContext(r.Context(), "request about a flow failed", "path", r.URL.Path, "error", err)
		}
		refusal.write(w)
	}
}
