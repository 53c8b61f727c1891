package takeover_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// ledger is a service downstream that refuses smaller fences than it has seen
// and can be asked what it did. It notes every execution that reached it.
type ledger struct {
	t *testing.T
	f *fleet

	mu   sync.Mutex
	keys map[string]*entry
}

// entry is what the ledger knows of one key.
type entry struct {
	highest    int64 // epoch presented
	applied    *execution
	executions []*execution
}

type execution struct {
	claim      takeover.Claim
	node       string
	begun, end time.Time // end is zero while it runs
	body       string
}

func newLedger(t *testing.T, f *fleet) *ledger { return &ledger{t: t, f: f, keys: map[string]*entry{}} }

func (l *ledger) of(key string) *entry {
	e := l.keys[key]
	if e == nil {
		e = &entry{}
		l.keys[key] = e
	}
	return e
}

// runs is how many executions of a key have begun.
func (l *ledger) runs(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of(key).executions)
}

// work is an execution on a member that takes some time and then applies its
// effect, unless it is told to end or its process is killed first.
func (l *ledger) work(m *member, takes time.Duration) takeover.Work {
	return func(ctx context.Context) takeover.Completion {
		x := l.begin(ctx, m)
		defer l.ends(x)
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return takeover.Completion{Reason: context.Cause(ctx).Error()}
		case <-m.killed:
			return takeover.Completion{Reason: "killed"}
		}
		if !l.apply(x) {
			return takeover.Completion{Reason: "the ledger has seen a greater fence"}
		}
		return created(x.body)
	}
}

// begin checks what must hold whenever an execution begins.
func (l *ledger) begin(ctx context.Context, m *member) *execution {
	claim, ok := takeover.ClaimFrom(ctx)
	if !ok {
		l.t.Error("an execution without a claim")
	}
	r := claim.Record
	l.handedOver(ctx, claim)
	if age, limit := m.Status().HeartbeatAge, m.startLimit(); age >= limit && m.Identity().Executor == r.Executor {
		l.t.Errorf("I7: %s began %s after its last heartbeat", m.name, age)
	}
	x := &execution{claim: claim, node: m.name, begun: time.Now(), body: fmt.Sprintf("%s by %s", r.Key, r.Fence())}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(r.Key)
	if n := len(e.executions); n > 0 && e.executions[n-1].claim.Record.Epoch >= r.Epoch {
		l.t.Errorf("I2: epoch %d of %q begins after %d", r.Epoch, r.Key, e.executions[n-1].claim.Record.Epoch)
	}
	e.executions = append(e.executions, x)
	e.highest = max(e.highest, r.Epoch)
	return x
}

// handedOver checks I5: the predecessor is terminal, or does not run the
// record, or is the same executor.
func (l *ledger) handedOver(ctx context.Context, c takeover.Claim) {
	from := c.Previous.Executor
	if from == (records.ExecutorID{}) || from == c.Record.Executor {
		return
	}
	m := l.f.member(from)
	if m == nil {
		return
	}
	row, err := m.gate.Store.LoadExecutor(context.WithoutCancel(ctx), from)
	if err != nil {
		l.t.Error(err)
	}
	if row.State.Terminal() {
		return
	}
	if _, running := m.Entry(c.Record.ID); running {
		l.t.Errorf("I5: %q was taken from %s, which runs it", c.Record.Key, m.name)
	}
}

func (l *ledger) apply(x *execution) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(x.claim.Record.Key)
	if e.highest > x.claim.Record.Epoch {
		return false
	}
	if e.applied != nil {
		l.t.Errorf("%q was applied twice", x.claim.Record.Key)
	}
	e.applied = x
	return true
}

func (l *ledger) ends(x *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.end = time.Now()
}

// Reconcile says what became of the key, and refuses smaller fences from now
// on.
func (l *ledger) Reconcile(_ context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(r.Key)
	e.highest = max(e.highest, r.Epoch)
	if e.applied == nil {
		return takeover.FoundNotApplied(), nil
	}
	return takeover.FoundApplied(created(e.applied.body).Response), nil
}

// audit checks the whole ledger against the store: every key has ended, what
// is stored is what was applied, and where only a lease may fence no two
// executions of a key overlap.
func (l *ledger) audit(m *member, policy records.Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.keys {
		r := m.record(l.t, ask(key))
		switch {
		case r.State == records.Unknown:
		case r.State != records.Finalized:
			l.t.Errorf("%q is %s", key, r.State)
		case e.applied == nil:
			l.t.Errorf("%q is finalized and was never applied", key)
		case string(r.Response.Body) != e.applied.body:
			l.t.Errorf("%q: %q was applied, %q is stored", key, e.applied.body, r.Response.Body)
		}
		for i, x := range e.executions[1:] {
			before := e.executions[i]
			if policy == records.PolicyLease && (before.end.IsZero() || before.end.After(x.begun)) {
				l.t.Errorf("%q: %s began %s before %s had ended", key, x.node, before.end.Sub(x.begun), before.node)
			}
		}
	}
}
