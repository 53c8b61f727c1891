package takeover_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// ask is a request for a key that may be executed again anywhere.
func ask(key string) takeover.Request {
	return takeover.Request{
		Key:       records.Key{Realm: "shop", Principal: "alice", Key: key},
		Operation: "create-payment", Fingerprint: records.FingerprintOf("POST", key), Wait: time.Minute,
		Terms: takeover.Terms{Reconciler: takeover.Reexecute},
	}
}

// askOnce is a request of which nobody can tell what became of it.
func askOnce(key string) takeover.Request {
	req := ask(key)
	req.Terms.Reconciler = nil
	return req
}

// askKnowing is a request whose reconciler is the given function.
func askKnowing(key string, reconcile takeover.ReconcilerFunc) takeover.Request {
	req := ask(key)
	req.Terms.Reconciler = reconcile
	return req
}

func created(body string) takeover.Completion {
	return takeover.Completion{Kind: takeover.Completed, Response: records.Response{
		Status: 201, Headers: []records.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(body),
	}}
}

// instant is work that completes at once and counts itself.
func instant(count *atomic.Int64, body string) takeover.Work {
	return func(context.Context) takeover.Completion {
		count.Add(1)
		return created(body)
	}
}

// held is work that says when it has begun and completes when told, or when
// its context ends.
type held struct {
	begun, finish chan struct{}
	once          sync.Once
	runs          atomic.Int64
	ending        atomic.Pointer[ending] // of its context, if it ended first
}

type ending struct {
	cause error
	at    time.Time
}

func newHeld() *held { return &held{begun: make(chan struct{}), finish: make(chan struct{})} }

func (h *held) work(ctx context.Context) takeover.Completion {
	h.runs.Add(1)
	h.once.Do(func() { close(h.begun) })
	select {
	case <-h.finish:
		return created("held")
	case <-ctx.Done():
		e := &ending{context.Cause(ctx), time.Now()}
		h.ending.Store(e)
		return takeover.Completion{Reason: e.cause.Error()}
	}
}

// stubborn is held work that does not look at its context.
func (h *held) stubborn(context.Context) takeover.Completion {
	h.runs.Add(1)
	h.once.Do(func() { close(h.begun) })
	<-h.finish
	return created("held")
}

// ended reports whether the work's context ended for the given reason.
func (h *held) ended(want error) bool {
	e := h.ending.Load()
	return e != nil && errors.Is(e.cause, want)
}

// refuse is work that must not run.
func refuse(t testing.TB) takeover.Work {
	return func(context.Context) takeover.Completion {
		t.Error("it was executed")
		return created("executed")
	}
}

type answered struct {
	takeover.Answer
	err error
}

// do asks in the background.
func do(m *member, req takeover.Request, work takeover.Work) <-chan answered {
	return doWith(m.fleet.t.Context(), m, req, work)
}

func doWith(ctx context.Context, m *member, req takeover.Request, work takeover.Work) <-chan answered {
	got := make(chan answered, 1)
	go func() {
		a, err := m.Do(ctx, req, work)
		got <- answered{a, err}
	}()
	return got
}

// begin has the member execute held work, and waits until it has begun.
func begin(m *member, req takeover.Request) (*held, <-chan answered) {
	h := newHeld()
	got := do(m, req, h.work)
	<-h.begun
	return h, got
}

func (a answered) check(t testing.TB, outcome takeover.OutcomeKind, body string) {
	t.Helper()
	if a.err != nil || a.Outcome != outcome {
		t.Fatalf("answer = %s, %v; want %s", a.Outcome, a.err, outcome)
	}
	if body != "" && (a.Record.Response == nil || string(a.Record.Response.Body) != body) {
		t.Fatalf("response = %+v, want body %q", a.Record.Response, body)
	}
}

func (a answered) fails(t testing.TB, want error) {
	t.Helper()
	if !errors.Is(a.err, want) {
		t.Fatalf("answer = %s, %v; want error %v", a.Outcome, a.err, want)
	}
}

// ran checks how often counted work ran.
func ran(t testing.TB, count *atomic.Int64, want int64) {
	t.Helper()
	if got := count.Load(); got != want {
		t.Errorf("ran %d times, want %d", got, want)
	}
}

// stands checks the state of a record in the store.
func stands(t testing.TB, m *member, req takeover.Request, want records.State) records.Record {
	t.Helper()
	r := m.record(t, req)
	if r.State != want {
		t.Fatalf("record is %s, want %s", r.State, want)
	}
	return r
}

// nobodyFenced checks that every executor lives, by the store.
func nobodyFenced(t testing.TB, m *member) {
	t.Helper()
	list, err := m.gate.Store.ListExecutors(context.WithoutCancel(t.Context()), records.Fenced)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		t.Errorf("%s was fenced: %s", e.Slot, e.FencedReason)
	}
}

// pendingForever is a reconciler that never finds out. It counts how often it
// was asked.
func pendingForever(asked *atomic.Int64) takeover.ReconcilerFunc {
	return func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
		asked.Add(1)
		return takeover.FoundPending(time.Minute), nil
	}
}
