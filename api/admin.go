package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// AdminStore is what operators look at and change.
type AdminStore interface {
	records.Store
	records.Interventions
	records.Audit
}

// AdminNode is the node that serves the operator API; [takeover.Node] is one.
type AdminNode interface {
	// Reconcile asks the record's reconciler, at an operator's wish.
	Reconcile(ctx context.Context, id records.ID, epoch int64) (takeover.Reconciliation, error)
	// WaitingFor is how many duplicates of the record wait on this node.
	WaitingFor(id records.ID) int
}

// AdminConfig is what the operator API stands on.
type AdminConfig struct {
	Store AdminStore
	Node  AdminNode
	// Ask asks the executor of a record whether it runs it; nil: nobody is asked.
	Ask Ask
	// Operators are who may come in, asked anew for every request. Nil: nobody
	// can, and every path is not found.
	Operators func() *Operators
	Flows     *AdminFlows // nil: there are no data flows
	Takeovers int         // the limit of executions after take-overs, for explanations

	ProblemTypes string       // as in [Config]
	Logger       *slog.Logger // default: discards
}

// Admin is the operator API, /v1 of the internal listener. Whoever has no token
// gets the same answer whatever the path; whoever has one reads, and with the
// role operate changes. A change names the epoch that the operator saw and a
// reason, is written down with the operator's name by the store, in the same
// transaction, and is logged.
type Admin struct {
	config AdminConfig
	router chi.Router
}

// NewAdmin builds the operator API. It starts nothing.
func NewAdmin(config AdminConfig) *Admin {
	setDefault(&config.ProblemTypes, DefaultProblemTypes)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Admin{config: config}
	a.router = a.newRouter()
	return a
}

// newRouter is all routes.
func (a *Admin) newRouter() chi.Router {
	r := chi.NewRouter()
	r.NotFound(a.reading(func(*http.Request) (any, error) { return nil, &adminError{code: adminNotFound} }))
	r.MethodNotAllowed(a.reading(func(*http.Request) (any, error) { return nil, &adminError{code: adminNoMethod} }))
	r.Get("/v1/records", a.reading(a.listRecords))
	r.Get("/v1/records/{id}", a.reading(a.showRecord))
	r.Post("/v1/records/{id}/release", a.changing(a.releaseRecord))
	r.Post("/v1/records/{id}/resolve", a.changing(a.resolveRecord))
	r.Post("/v1/records/{id}/reconcile", a.changing(a.reconcileRecord))
	r.Post("/v1/principals/erase", a.changing(a.erasePrincipal))
	r.Get("/v1/executors", a.reading(a.listExecutors))
	r.Get("/v1/executors/{id}", a.reading(a.showExecutor))
	r.Post("/v1/executors/{id}/fence", a.changing(a.fenceExecutor))
	r.Get("/v1/events", a.reading(a.listEvents))
	r.Post("/v1/purge", a.changing(a.purge))
	a.mountFlows(r)
	return r
}

// ServeHTTP implements [http.Handler].
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.Body != nil {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // unsupported: the server's own limits hold
		r = r.WithContext(r.Context())
		r.Body = &arriving{r.Body, func() { _ = rc.SetReadDeadline(time.Time{}) }}
	}
	a.router.ServeHTTP(w, r)
}

// arriving is a body that is late from some instant on: also for the server,
// which reads on when a request was refused. Once it is there that instant must
// not end the request.
type arriving struct {
	io.ReadCloser
	arrived func()
}

// Read implements [io.Reader].
func (b *arriving) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.arrived()
	}
	return n, err
}

// reading answers who is let in at all.
func (a *Admin) reading(answer func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		r = r.WithContext(ctx)
		_, err := a.admit(r)
		var v any
		if err == nil {
			v, err = answer(r)
		}
		a.answer(w, r, v, err)
	}
}

// changing answers who may change something.
func (a *Admin) changing(answer func(r *http.Request, who operator) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		r = r.WithContext(ctx)
		who, err := a.admit(r)
		if err == nil && who.role != RoleOperate {
			err = &adminError{code: adminForbidden}
		}
		var v any
		if err == nil {
			r.Body = http.MaxBytesReader(w, r.Body, maxOrderBytes)
			v, err = answer(r, who)
		}
		a.answer(w, r, v, err)
	}
}

func (a *Admin) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		a.refused(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", v)
}

// admit finds out who asks. A refusal says nothing but that.
func (a *Admin) admit(r *http.Request) (operator, error) {
	operators := a.config.Operators()
	if operators == nil {
		return operator{}, &adminError{code: adminNotFound}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	who, known := operators.find(strings.TrimSpace(token))
	if !known || !strings.EqualFold(scheme, "Bearer") || len(r.Header.Values("Authorization")) != 1 {
		a.config.Logger.WarnContext(r.Context(), "operator not let in", "remote", r.RemoteAddr)
		return operator{}, &adminError{code: adminUnauthorized}
	}
	return who, nil
}

// Bounds of an operator's request.
const (
	maxOrderBytes    = 3 << 20 // a response of 1 MiB in base64, or escaped, and then some
	maxResolvedBytes = 1 << 20 // of that response's body
)

// readOrder reads what a change is asked for, strictly: a misspelt word must
// not be taken for one that was left out.
func readOrder(r *http.Request, into interface{ check() error }) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errors.New("something follows the JSON object")
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return refuse(adminTooLarge, "The body has more than %d bytes.", maxOrderBytes)
	}
	if err == nil {
		err = into.check()
	}
	if err != nil {
		return refuse(adminInvalid, "The body cannot be used: %v.", err)
	}
	return nil
}

// order is what every change of a record says.
type order struct {
	Epoch  int64  `json:"epoch"` // at which the operator saw it
	Reason string `json:"reason"`
}

func (o *order) check() error {
	if o.Epoch < 1 {
		return errors.New("epoch: missing; it is the one at which you saw the record")
	}
	return records.ValidateGrounds(o.Reason)
}

// change logs what an operator has changed. Names and ids only: never a key.
func (a *Admin) change(r *http.Request, who operator, action string, args ...any) {
	args = append([]any{"operator", who.name, "action", action}, args...)
	a.config.Logger.InfoContext(r.Context(), "changed by an operator", args...)
}

// recordID reads the id in the path.
func recordID(r *http.Request) (records.ID, error) {
	id, err := records.ParseID(chi.URLParam(r, "id"))
	if err != nil {
		return id, refuse(adminInvalid, "The path has no record: %v.", err)
	}
	return id, nil
}

// Page sizes.
const (
	defaultPage = 50
	largestPage = 1000
)

// Bounds in time.
const (
	bodyTime    = 10 * time.Second // in which a request's body has to arrive
	requestTime = 50 * time.Second // of one request; less than who asks waits
	storeTime   = 30 * time.Second // of what one request asks of the store at a time
)
