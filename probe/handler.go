package probe

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
)

// Self tells who answers. A process that registers again after a fence is
// another executor, so it is asked each time.
type Self interface {
	// Identity is the current boot; without a key, this process is not
	// registered and answers no question.
	Identity() Identity
}

// Identity is what a boot signs with.
type Identity struct {
	Executor records.ExecutorID
	Slot     string
	Key      ed25519.PrivateKey
}

// Runs is the running set.
type Runs interface {
	// Entry reports whether the record has an entry, at any epoch, and a
	// channel that is closed when the entry is removed. An entry exists from
	// before the record's reserve or take-over is sent until its last write
	// has settled.
	Entry(id records.ID) (done <-chan struct{}, running bool)
}

// Node tells how this process is doing.
type Node interface {
	Status() Status
}

// Status is what GET /probe reports.
type Status struct {
	Executor     records.ExecutorID
	Slot         string
	State        records.ExecutorState
	InProgress   int           // records in the running set
	HeartbeatAge time.Duration // since the last good heartbeat was sent
	LeaseTTL     time.Duration
}

// Serving reports whether new requests should be sent here: it is active and
// has reached the store within its lease.
func (s Status) Serving() bool {
	return s.State == records.Active && s.HeartbeatAge <= s.LeaseTTL
}

// Peers is the list of executors that the last heartbeat returned.
type Peers interface {
	Lookup(id records.ExecutorID) (records.Executor, bool)
}

// Prober asks a suspect on behalf of an observer. [Client] is one.
type Prober interface {
	Probe(ctx context.Context, a records.Executor, id records.ID, epoch int64) Observation
}

// HandlerConfig is what a handler reads from. The interfaces are required;
// none of them may block. Zero limits mean the default.
type HandlerConfig struct {
	Cluster string
	Version string // of the binary, for GET /probe
	Token   string // bearer token that questions must carry; empty: none

	Self   Self
	Runs   Runs
	Node   Node
	Peers  Peers
	Prober Prober

	Limits Limits
}

// Handler answers: is this process serving, does it run that record, what
// does it see of that executor. It changes nothing.
type Handler struct {
	cfg       HandlerConfig
	routes    chi.Router
	questions gate
	polls     gate
	witnesses gate
}

// NewHandler joins every fault of the configuration in its error.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	var faults []error
	require := func(ok bool, what string) {
		if !ok {
			faults = append(faults, errors.New("probe handler: no "+what))
		}
	}
	require(cfg.Self != nil, "identity")
	require(cfg.Runs != nil, "running set")
	require(cfg.Node != nil, "node status")
	require(cfg.Peers != nil, "list of peers")
	require(cfg.Prober != nil, "prober")
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	h := &Handler{cfg: cfg}
	h.questions.total, h.questions.perPeer = cfg.Limits.Questions, cfg.Limits.QuestionsPerPeer
	h.polls.total, h.polls.perPeer = cfg.Limits.Polls, cfg.Limits.PollsPerPeer
	h.witnesses.total, h.witnesses.perPeer = cfg.Limits.Witnesses, cfg.Limits.WitnessesPerPeer
	h.routes = chi.NewRouter()
	h.routes.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "no such path")
	})
	h.routes.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "no such method on this path")
	})
	h.Mount(h.routes)
	return h, nil
}

// Mount adds the routes to a router that also serves others.
func (h *Handler) Mount(r chi.Router) {
	r.Get("/probe", h.Health)
	r.Head("/probe", h.Health)
	r.Get("/readyz", h.Health)
	r.Head("/readyz", h.Health)
	r.Get("/livez", live)
	r.Head("/livez", live)
	r.With(h.authorized).Post("/probe/records/{id}", h.record)
	r.With(h.authorized).Post("/probe/witness", h.witness)
}

// ServeHTTP serves the routes alone.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.routes.ServeHTTP(w, r) }

// Health is GET /probe, for a public listener too: 200 when serving, else
// 503, and why in JSON.
func (h *Handler) Health(w http.ResponseWriter, _ *http.Request) {
	s := h.cfg.Node.Status()
	code := http.StatusOK
	if !s.Serving() {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, "application/json", struct {
		Executor       string `json:"executor"`
		Slot           string `json:"slot"`
		State          string `json:"state"`
		InProgress     int    `json:"in_progress"`
		HeartbeatAgeMS int64  `json:"heartbeat_age_ms"`
		Version        string `json:"version"`
	}{s.Executor.String(), s.Slot, string(s.State), s.InProgress, s.HeartbeatAge.Milliseconds(), h.cfg.Version})
}

func live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", map[string]string{"status": "alive"})
}

// refuse writes a problem document (RFC 9457).
func refuse(w http.ResponseWriter, status int, code, detail string) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, "application/problem+json", struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}{"about:blank", http.StatusText(status), status, detail, code})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone; nobody to tell
}
