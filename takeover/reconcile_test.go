package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// abandoned is a record of a dead, fenced executor and a node that lives.
func abandoned(f *fleet, req takeover.Request) (dead, alive *member) {
	f.t.Helper()
	nodes := f.start(takeover.Config{}, "a", "b")
	_, _ = begin(nodes[0], req)
	f.die(nodes[0])
	f.fence(nodes[0])
	return nodes[0], nodes[1]
}

// findings is a reconciler that gives one answer after another, the last one
// for good, and notes when it was asked.
type findings struct {
	all   []func() (takeover.Finding, error)
	asked []time.Time
}

func (s *findings) Reconcile(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
	s.asked = append(s.asked, time.Now())
	next := s.all[0]
	if len(s.all) > 1 {
		s.all = s.all[1:]
	}
	return next()
}

func pending(after time.Duration) func() (takeover.Finding, error) {
	return func() (takeover.Finding, error) { return takeover.FoundPending(after), nil }
}

func applied(body string) func() (takeover.Finding, error) {
	return func() (takeover.Finding, error) { return takeover.FoundApplied(created(body).Response), nil }
}

func notApplied() (takeover.Finding, error) { return takeover.FoundNotApplied(), nil }

func undecidable() (takeover.Finding, error) { return takeover.Finding{}, nil }

func TestReconcile(t *testing.T) {
	t.Parallel()
	rule(t, "AppliedIsFinalizedAndNotExecuted", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){applied("found")}}
		req := askKnowing("k", s.Reconcile)
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.Reconciled, "found")
		(<-do(b, req, refuse(t))).check(t, takeover.Replayed, "found")
	})

	rule(t, "NotAppliedIsExecutedOnceAtTheNewEpoch", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){notApplied}}
		req := askKnowing("k", s.Reconcile)
		a, b := abandoned(f, req)
		before := b.record(t, req)
		got := <-do(b, req, func(ctx context.Context) takeover.Completion {
			claim, _ := takeover.ClaimFrom(ctx)
			if claim.Previous != before.Fence() || claim.Record.Epoch != before.Epoch+1 || claim.Previous.Executor != a.Identity().Executor {
				t.Errorf("claim %+v after %s", claim, before.Fence())
			}
			return created("second")
		})
		got.check(t, takeover.TookOver, "second")
	})

	rule(t, "UndecidableEndsUnknown", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){undecidable}}
		req := askKnowing("k", s.Reconcile)
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		stands(t, b, req, records.Unknown)
	})

	rule(t, "WithoutAReconcilerEndsUnknown", func(t *testing.T, f *fleet) {
		_, b := abandoned(f, askOnce("k"))
		(<-do(b, askOnce("k"), refuse(t))).check(t, takeover.OutcomeUnknown, "")
		stands(t, b, askOnce("k"), records.Unknown)
	})

	rule(t, "PendingIsAskedAgainWhenItSaid", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){pending(7 * time.Second), pending(11 * time.Second), applied("found")}}
		req := askKnowing("k", s.Reconcile)
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.Reconciled, "found")
		if len(s.asked) != 3 || s.asked[1].Sub(s.asked[0]) != 7*time.Second || s.asked[2].Sub(s.asked[1]) != 11*time.Second {
			t.Errorf("asked at %v", s.asked)
		}
	})

	rule(t, "PendingIsAskedByBackoffUntilTheDeadline", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){pending(0)}}
		req := askKnowing("k", s.Reconcile)
		req.Terms.WorkTimeout = 30 * time.Second
		_, b := abandoned(f, req)
		since := time.Now()
		(<-do(b, req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		if took := time.Since(since); took < 29*time.Second || took > 31*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := len(s.asked); n < 20 || n > 100 {
			t.Errorf("asked %d times", n)
		}
		stands(t, b, req, records.Unknown)
	})

	rule(t, "OneThatFailsIsPending", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){
			func() (takeover.Finding, error) { return takeover.Finding{}, errors.New("down") },
			func() (takeover.Finding, error) { return takeover.FoundNotApplied(), errors.New("down, and wrong") },
			func() (takeover.Finding, error) { panic("boom") },
			func() (takeover.Finding, error) { return takeover.FoundApplied(records.Response{Status: 1}), nil },
			applied("found"),
		}}
		req := askKnowing("k", s.Reconcile)
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.Reconciled, "found")
		if len(s.asked) != 5 {
			t.Errorf("asked %d times", len(s.asked))
		}
	})

	rule(t, "OneThatIsSlowIsCutOffAtTheDeadline", func(t *testing.T, f *fleet) {
		var asked atomic.Int64
		req := askKnowing("k", func(ctx context.Context, _ records.Record, _ takeover.Request) (takeover.Finding, error) {
			asked.Add(1)
			<-ctx.Done()
			return takeover.FoundNotApplied(), nil // too late to count
		})
		req.Terms.WorkTimeout = 20 * time.Second
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		ran(t, &asked, 1)
		stands(t, b, req, records.Unknown)
	})

	rule(t, "OneThatIgnoresItsContextIsNotWaitedFor", func(t *testing.T, f *fleet) {
		answer := make(chan struct{})
		req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			<-answer
			return takeover.FoundNotApplied(), nil
		})
		req.Terms.WorkTimeout = 20 * time.Second
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		stands(t, b, req, records.Unknown)
		if err := f.gone(b); err != nil {
			t.Errorf("Run = %v", err)
		}
		close(answer)
	})

	rule(t, "OneThatEndsItsGoroutineIsPending", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){
			func() (takeover.Finding, error) { runtime.Goexit(); return takeover.Finding{}, nil },
			applied("found"),
		}}
		req := askKnowing("k", s.Reconcile)
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.Reconciled, "found")
	})

	rule(t, "NotAppliedCountsOnlyAfterSettling", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){notApplied}}
		req := askKnowing("k", s.Reconcile)
		req.Terms.Settle = 25 * time.Second
		_, b := abandoned(f, req)
		fencedAt := time.Now()
		f.pass(10 * time.Second)
		(<-do(b, req, func(context.Context) takeover.Completion {
			if since := time.Since(fencedAt); since < 25*time.Second || since > 26*time.Second {
				t.Errorf("executed %s after the fence", since)
			}
			return created("second")
		})).check(t, takeover.TookOver, "second")
	})

	rule(t, "AppliedCountsWhileSettling", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){notApplied, applied("late")}}
		req := askKnowing("k", s.Reconcile)
		req.Terms.Settle = 25 * time.Second
		_, b := abandoned(f, req)
		(<-do(b, req, refuse(t))).check(t, takeover.Reconciled, "late")
	})

	rule(t, "ARecordSignedNotRunningSettlesFromTheSignature", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){notApplied}}
		req := askKnowing("k", s.Reconcile)
		req.Terms.Settle = 10 * time.Second
		nodes := f.start(takeover.Config{}, "a", "b")
		orphan(t, nodes[0], req)
		since := time.Now()
		var runs atomic.Int64
		(<-do(nodes[1], req, instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took < 10*time.Second {
			t.Errorf("executed after %s", took)
		}
	})

	rule(t, "AnUnknownOutcomeIsClaimedAndAskedAbout", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		(<-do(nodes[0], askOnce("k"), func(context.Context) takeover.Completion { return takeover.Completion{} })).check(t, takeover.Executed, "")
		before := stands(t, nodes[0], askOnce("k"), records.Unknown)
		s := &findings{all: []func() (takeover.Finding, error){undecidable, applied("found")}}
		req := askKnowing("k", s.Reconcile)
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.Reconciled, "found")
		if now := stands(t, nodes[1], req, records.Finalized); now.Epoch != before.Epoch+2 {
			t.Errorf("epoch %d after %d", now.Epoch, before.Epoch)
		}
	})

	rule(t, "WhoCannotTellEitherDoesNotMakeItRemembered", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		// Whatever their clocks say.
		for i, by := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute} {
			b := f.prepare(takeover.Config{}, fmt.Sprint("b", i))
			b.gate.Store = ahead{b.gate.Store, by}
			b.serve()
			f.run(b)
			f.serving(b)
			key := fmt.Sprint("k", i)
			(<-do(a, askOnce(key), func(context.Context) takeover.Completion { return takeover.Completion{} })).check(t, takeover.Executed, "")
			before := stands(t, a, askOnce(key), records.Unknown)
			f.pass(2 * time.Minute)
			s := &findings{all: []func() (takeover.Finding, error){undecidable, undecidable}}
			req := askKnowing(key, s.Reconcile)
			for range 2 {
				(<-do(b, req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
			}
			if now := stands(t, a, req, records.Unknown); now.Epoch != before.Epoch+2 || now.ExpiresAt.Sub(before.ExpiresAt).Abs() > time.Second {
				t.Errorf("by %s: epoch %d, expires %s, after %d, %s", by, now.Epoch, now.ExpiresAt, before.Epoch, before.ExpiresAt)
			}
		}
	})

	rule(t, "TwoWhoClaimAnUnknownOutcomeAskOnce", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		<-do(nodes[0], askOnce("k"), func(context.Context) takeover.Completion { return takeover.Completion{} })
		s := &findings{all: []func() (takeover.Finding, error){pending(5 * time.Second), applied("found")}}
		req := askKnowing("k", s.Reconcile)
		one := do(nodes[0], req, refuse(t))
		f.await("it is asked", func() bool { return nodes[0].gate.Calls(recordstest.ClaimUnknown) == 1 })
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.Waited, "found")
		(<-one).check(t, takeover.Reconciled, "found")
		if len(s.asked) != 2 {
			t.Errorf("asked %d times", len(s.asked))
		}
	})
}

// reconcileCases are those about interrupted executions.
func reconcileCases(t *testing.T) {
	rule(t, "K41_ReconcilerReadsAStaleRowAndTheOwnerCompletes", func(t *testing.T, f *fleet) {
		req := ask("k")
		answer := make(chan struct{})
		asked := make(chan struct{})
		req.Terms.Reconciler = takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			close(asked)
			<-answer
			return takeover.FoundApplied(created("stale").Response), nil
		})
		_, b := abandoned(f, req)
		c := f.start(takeover.Config{}, "c")[0]
		late := do(b, req, refuse(t))
		<-asked
		f.fence(b) // it hangs; c overtakes it and completes
		var runs atomic.Int64
		(<-do(c, ask("k"), instant(&runs, "completed"))).check(t, takeover.TookOver, "completed")
		close(answer)
		(<-late).check(t, takeover.Waited, "completed")
		if r := stands(t, c, req, records.Finalized); string(r.Response.Body) != "completed" {
			t.Errorf("%q is stored", r.Response.Body)
		}
	})

	rule(t, "K47_TwoReconcilersTheSecondWithAnOldList", func(t *testing.T, f *fleet) {
		asked := map[string]*atomic.Int64{"b": {}, "c": {}}
		sweeping := func(node string) takeover.Config {
			return takeover.Config{Recover: func(records.Record) (takeover.Terms, takeover.Work, bool) {
				return takeover.Terms{Reconciler: takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
					asked[node].Add(1)
					return takeover.FoundApplied(created("swept").Response), nil
				})}, refuse(t), true
			}}
		}
		a := f.start(takeover.Config{}, "a")[0]
		c := f.start(sweeping("c"), "c")[0]
		claim := make(chan struct{})
		c.gate.Always(recordstest.TakeOver, recordstest.Fault{Pause: claim})
		const many = 10
		for i := range many {
			_, _ = begin(a, ask(fmt.Sprint(i)))
		}
		f.die(a)
		f.fence(a)
		f.await("c has its list", func() bool { return c.gate.Calls(recordstest.TakeOver) > 0 })
		f.start(sweeping("b"), "b")
		f.await("b has swept", func() bool { return f.count(settled, func(e event) bool { return e.node == "b" }) == many })
		close(claim)
		f.pass(time.Minute)
		ran(t, asked["b"], many)
		ran(t, asked["c"], 0)
	})

	rule(t, "K52_ARecordWhoseWorkKillsItsNodeEachTime", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{Takeovers: 2}, "a", "b", "c", "d", "e")
		var runs atomic.Int64
		kill := func(m *member) takeover.Work {
			return func(ctx context.Context) takeover.Completion {
				runs.Add(1)
				f.die(m)
				<-ctx.Done()
				return takeover.Completion{}
			}
		}
		req := ask("poison")
		req.Wait = time.Hour
		var last answered
		for _, m := range nodes[:4] {
			got := do(m, req, kill(m))
			f.await("it ends, or its node does", func() bool {
				select {
				case last = <-got:
					return true
				default:
					return m.dead.Load()
				}
			})
		}
		last.check(t, takeover.OutcomeUnknown, "")
		ran(t, &runs, 3)
		(<-do(nodes[4], req, kill(nodes[4]))).check(t, takeover.OutcomeUnknown, "")
		for _, m := range nodes[3:] {
			(<-do(m, ask("other "+m.name), instant(&atomic.Int64{}, "one"))).check(t, takeover.Executed, "one")
		}
	})
}

// ahead is a store whose clock is ahead of the process' by some time.
type ahead struct {
	records.Store
	by time.Duration
}

func (s ahead) held(h records.Held) records.Held {
	if !h.Record.ExpiresAt.IsZero() {
		h.Record.ExpiresAt = h.Record.ExpiresAt.Add(s.by)
	}
	h.Executor.HeartbeatAt = h.Executor.HeartbeatAt.Add(s.by)
	return h
}

func (s ahead) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	got, err := s.Store.Reserve(ctx, r)
	got.Held = s.held(got.Held)
	return got, err
}

func (s ahead) Load(ctx context.Context, id records.ID) (records.Held, error) {
	h, err := s.Store.Load(ctx, id)
	return s.held(h), err
}

func (s ahead) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	all, err := s.Store.ListExecutors(ctx, states...)
	for i := range all {
		all[i].HeartbeatAt = all[i].HeartbeatAt.Add(s.by)
	}
	return all, err
}
