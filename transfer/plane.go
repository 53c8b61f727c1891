package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Plane is the data plane of one process.
type Plane struct {
	config Config
	store  Store
	log    *slog.Logger
	tokens [][sha256.Size]byte

	ledger *ledger
	places chan struct{} // one for each copy under way
	kicked chan struct{} // capacity 1: there are callbacks to deliver
	// Flows that were asked for here and are to be prepared.
	preparing chan string

	mu      sync.Mutex
	runs    map[string]*run // flows whose bytes this process moves, or is about to
	leaving bool
	streams map[string]map[*stream]struct{} // open reads and writes of consumers and providers, by flow
	// Requests that were let in and have nothing in runs yet: starts on their
	// way, and all that fire-and-forget transfers are.
	admitted int
}

// errLeaving is the cause of work that ended because this node leaves: another
// goes on with it.
var errLeaving = errors.New("node is leaving")

// New builds a plane. It moves nothing before somebody asks; [Plane.Run] does
// what nobody waits for.
func New(config Config) (*Plane, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	if config.Coordinator == nil || config.Store == nil || config.Peers == nil || config.Ends == nil {
		return nil, errors.New("data plane: coordinator, store, peers and ends are needed")
	}
	p := &Plane{
		config: config, store: heard{config.Store, config.Events}, log: config.Logger, tokens: hashed(config.Tokens),
		places: make(chan struct{}, config.Flows), kicked: make(chan struct{}, 1), preparing: make(chan string, preparingAtOnce),
		runs: map[string]*run{}, streams: map[string]map[*stream]struct{}{},
	}
	p.ledger = newLedger(p.store, config.NoteEvery, p.log)
	return p, nil
}

// Routes are what control planes, consumers and providers see, to be mounted
// where Location headers will find them: under /dataflows.
func (p *Plane) Routes() http.Handler {
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		refused(http.StatusNotFound, "not_found", "no such path").write(w)
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		refused(http.StatusMethodNotAllowed, "method_not_allowed", "no such method on this path").write(w)
	})
	r.Group(func(r chi.Router) {
		r.Use(sameOrigin, p.authorized)
		r.Post("/prepare", p.answering(p.prepare))
		r.Post("/start", p.answering(p.start))
		r.Post("/{id}/started", p.answering(p.started))
		r.Post("/{id}/suspend", p.answering(p.suspend))
		r.Post("/{id}/resume", p.answering(p.resume))
		r.Post("/{id}/terminate", p.answering(p.terminate))
		r.Post("/{id}/completed", p.answering(p.completed))
		r.Get("/{id}/status", p.answering(p.status))
	})
	r.Get("/{id}/data", p.serveData)
	r.Head("/{id}/data", p.serveData)
	r.Put("/{id}/data", p.receiveData)
	r.Post("/{id}/data", p.receiveData)
	return r
}

// sameOrigin refuses what a browser sends for another site's page. Where no
// token is asked for, or the browser has a certificate, such a page could start
// transfers.
func sameOrigin(next http.Handler) http.Handler {
	c := http.NewCrossOriginProtection()
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="dataflows"`)
		refused(http.StatusUnauthorized, "unauthorized", "a page of another origin may not do this").write(w)
	}))
	return c.Handler(next)
}

// Internal is what the fleet's nodes ask each other, to be mounted on the
// internal listener, behind what guards that. It takes no order: it has this
// node look at what the store says is wanted.
func (p *Plane) Internal() http.Handler {
	r := chi.NewRouter()
	r.Post("/{id}/heed", p.answering(p.heed))
	return r
}

// Recover is what a sweep is to do with an interrupted copy. It is a
// takeover.Config's. Those of the dead are left to [Plane.Run], which takes them
// over like a start that is repeated: a sweep has few places, and copies are
// long. What this executor claimed without knowing is let go of, to be found
// there.
func (p *Plane) Recover(r records.Record) (takeover.Terms, takeover.Work, bool) {
	if r.Realm != realm || r.Operation != operation || r.Executor != p.config.Peers.Self() {
		return takeover.Terms{}, nil, false
	}
	return p.terms(), func(context.Context) takeover.Completion { return interrupted("claimed without knowing") }, true
}

// terms: whatever was interrupted can be done again, so nobody needs to find
// out what became of it. A flow is remembered for longer than its record, which
// would otherwise answer for another flow of the same id.
func (p *Plane) terms() takeover.Terms {
	return takeover.Terms{
		Retention:        min(takeover.DefaultRetention, p.config.Retention/2),
		UnknownRetention: min(takeover.DefaultUnknownRetention, p.config.Retention/2),
		WorkTimeout:      p.config.WorkTimeout, Reconciler: again{},
	}
}

// again is the reconciler of work that can be repeated: what a sink shows is
// whole or not there, and what an older epoch has begun is taken away.
type again struct{}

// Reconcile implements [takeover.Reconciler].
func (again) Reconcile(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
	return takeover.FoundNotApplied(), nil
}

// reaches reports whether this process can do the task.
func (p *Plane) reaches(t Task) bool { return t.Slot == "" || t.Slot == p.config.Slot }

// Drain ends what this node moves, so that others go on with it, and lets
// nothing new begin.
func (p *Plane) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	for _, r := range p.runs {
		r.cancel(errLeaving)
	}
	for _, streams := range p.streams {
		for s := range streams {
			s.cut(errLeaving)
		}
	}
}

func (p *Plane) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

// kick has callbacks delivered at once.
func (p *Plane) kick() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}
