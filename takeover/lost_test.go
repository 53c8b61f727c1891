package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// fence fences a member by an operator's force.
func (f *fleet) fence(m *member) {
	f.t.Helper()
	if _, err := m.gate.Store.FenceByOperator(f.t.Context(), records.Condemnation{Executor: m.Identity().Executor, Actor: "test", Reason: "test", Force: true}); err != nil {
		f.t.Fatal(err)
	}
}

func TestLostLease(t *testing.T) {
	t.Parallel()
	rule(t, "EndsWorkByItself", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		h, first := begin(m, askOnce("k"))
		m.gate.shut()
		last := m.row(t).HeartbeatAt
		f.await("the work ends", func() bool { return h.ending.Load() != nil })
		if !h.ended(takeover.ErrLeaseLost) {
			t.Errorf("it ended for %v", h.ending.Load().cause)
		}
		if after := h.ending.Load().at.Sub(last); after > 12*time.Second+20*time.Millisecond || after < 11*time.Second {
			t.Errorf("it ended %s after the last heartbeat, want lease ttl − margin", after)
		}
		if n := m.Status().InProgress; n != 1 {
			t.Errorf("%d entries while its end is not settled, want 1", n)
		}
		m.gate.openAgain()
		(<-first).check(t, takeover.Executed, "")
		stands(t, m, askOnce("k"), records.Unknown)
		nobodyFenced(t, m)
	})

	rule(t, "LeavesInterruptedWorkToItsReconciler", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		req := askKnowing("lost", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(created("found").Response), nil
		})
		h, first := begin(m, req)
		m.gate.shut()
		f.await("the work ends", func() bool { return h.ended(takeover.ErrLeaseLost) })
		m.gate.openAgain()
		(<-first).check(t, takeover.Reconciled, "found")
		stands(t, m, req, records.Finalized)
	})

	rule(t, "ClaimsNothing", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.shut(recordstest.Heartbeat)
		f.pass(13 * time.Second)
		(<-do(m, ask("k"), refuse(t))).fails(t, takeover.ErrNotServing)
		if n := m.gate.Calls(recordstest.Reserve); n != 0 {
			t.Errorf("it tried %d times", n)
		}
		m.gate.openAgain()
		f.pass(2 * time.Second)
		var runs atomic.Int64
		(<-do(m, ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
	})

	rule(t, "StopsBeingReady", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.shut()
		f.pass(17 * time.Second)
		if m.Status().Serving() {
			t.Error("ready without a heartbeat for longer than the lease")
		}
		m.gate.openAgain()
		f.await("it is ready again", func() bool { return m.Status().Serving() })
	})
}

func TestBeatFirstThenStart(t *testing.T) {
	t.Parallel()
	rule(t, "WorkWaitsForAHeartbeatThatIsOverdue", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.shut(recordstest.Heartbeat)
		f.pass(5 * time.Second) // over probe budget − 1 s, and the lease is held
		h := newHeld()
		first := do(m, ask("k"), h.work)
		f.pass(2 * time.Second)
		ran(t, &h.runs, 0)
		stands(t, m, ask("k"), records.InProgress)
		m.gate.openAgain()
		<-h.begun
		if age := m.Status().HeartbeatAge; age > 4*time.Second {
			t.Errorf("it began %s after a heartbeat", age)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "UnderPolicyLeaseItStartsUntilTheMargin", func(t *testing.T, f *fleet) {
		m := f.start(leased(), "a")[0]
		m.gate.shut(recordstest.Heartbeat)
		f.pass(10 * time.Second)
		var runs atomic.Int64
		(<-do(m, ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
	})

	rule(t, "AKeyWhoseWorkMayNotStartIsFreedAgain", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.shut(recordstest.Heartbeat)
		f.pass(5 * time.Second)
		got := <-do(m, ask("k"), refuse(t))
		if got.err == nil && got.Outcome == takeover.Executed && got.Completion.Kind == takeover.Completed {
			t.Errorf("the caller was told %+v", got.Answer)
		}
		stands(t, m, ask("k"), records.Released)
	})

	rule(t, "ATakeOverExecutesOnlyAfterAHeartbeatToo", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		f.fence(nodes[0])
		nodes[1].gate.shut(recordstest.Heartbeat)
		f.pass(5 * time.Second)
		h := newHeld()
		second := do(nodes[1], ask("k"), h.work)
		f.pass(2 * time.Second)
		ran(t, &h.runs, 0)
		nodes[1].gate.openAgain()
		<-h.begun
		close(h.finish)
		(<-second).check(t, takeover.TookOver, "held")
	})
}

func TestAfterAFence(t *testing.T) {
	t.Parallel()
	rule(t, "ItCancelsWaitsAndRegistersAsAnother", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		a := nodes[0]
		old := a.Identity().Executor
		quick, _ := begin(a, askOnce("quick"))
		slow := newHeld()
		first := do(a, askOnce("slow"), slow.stubborn)
		<-slow.begun
		f.fence(a)
		f.await("work is told", func() bool { return quick.ended(takeover.ErrExecutorFenced) })
		f.pass(2 * time.Second)
		if now := a.Identity().Executor; now != old {
			t.Fatal("it registered while old work runs")
		}
		if s := a.Status(); s.State != records.Fenced || s.Serving() {
			t.Errorf("it is %s", s.State)
		}
		(<-do(a, ask("other"), refuse(t))).fails(t, takeover.ErrNotServing)
		close(slow.finish)
		f.await("it is another", func() bool { return a.Identity().Executor != old && a.Status().State == records.Active })
		if row := a.row(t); row.State != records.Active || row.Slot != "a" {
			t.Errorf("registered %+v", row)
		}
		if state := a.executor(t, old).State; state != records.Fenced {
			t.Errorf("the old executor is %s", state)
		}
		// Nobody had overtaken it, so its result was still taken.
		(<-first).check(t, takeover.Executed, "held")
		stands(t, a, askOnce("slow"), records.Finalized)
		var runs atomic.Int64
		(<-do(a, ask("other"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
	})

	rule(t, "ItWaitsForWorkThatWasGivenUp", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		a := nodes[0]
		old := a.Identity().Executor
		h := newHeld()
		first := do(a, askOnce("k"), h.stubborn)
		<-h.begun
		f.fence(a)
		(<-first).check(t, takeover.Executed, "")
		stands(t, a, askOnce("k"), records.Unknown)
		f.pass(time.Minute)
		if now := a.Identity().Executor; now != old {
			t.Fatal("it registered while old work runs")
		}
		if _, running := a.Entry(askOnce("k").Key.ID()); !running {
			t.Error("it says that it is not running what it runs")
		}
		close(h.finish)
		f.await("it is another", func() bool { return a.Identity().Executor != old && a.Status().State == records.Active })
	})

	rule(t, "ALateResultOfAnOvertakenOwnerIsRefused", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h := newHeld()
		first := do(nodes[0], ask("k"), h.stubborn)
		<-h.begun
		epoch := nodes[0].record(t, ask("k")).Epoch
		f.fence(nodes[0])
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		close(h.finish)
		(<-first).check(t, takeover.Waited, "second")
		if r := stands(t, nodes[1], ask("k"), records.Finalized); r.Epoch != epoch+1 || r.Takeovers != 1 {
			t.Errorf("epoch %d after %d, %d take-overs", r.Epoch, epoch, r.Takeovers)
		}
	})

	rule(t, "ByItsOwnSlotItNeverRegistersAgain", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		old := nodes[0]
		h := newHeld()
		first := do(old, ask("k"), h.stubborn)
		<-h.begun
		// A stopped process says nothing; its socket is taken by the next boot.
		old.gate.freeze()
		old.hangUp()
		again := f.reboot(old)
		f.serving(again, nodes[1])
		var runs atomic.Int64
		(<-do(again, ask("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		old.gate.openAgain()
		f.pass(5 * time.Second)
		if old.returned() {
			t.Fatal("it returned while its work runs")
		}
		close(h.finish)
		if err := f.end(old); !errors.Is(err, takeover.ErrReplaced) {
			t.Errorf("Run = %v, want ErrReplaced", err)
		}
		(<-first).check(t, takeover.Waited, "second")
		if state := again.row(t).State; state != records.Active {
			t.Errorf("the new boot is %s", state)
		}
		ran(t, &runs, 1)
	})

	rule(t, "WorkThatNeverReturnsEndsTheNode", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{DrainTimeout: time.Minute}, "a")[0]
		h := newHeld()
		_ = do(m, askOnce("k"), h.stubborn)
		<-h.begun
		f.fence(m)
		if err := f.end(m); !errors.Is(err, takeover.ErrExecutorFenced) {
			t.Errorf("Run = %v, want ErrExecutorFenced", err)
		}
		close(h.finish)
	})

	rule(t, "AStoreThatIsAwayIsAskedWhyUntilItAnswers", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		a := nodes[0]
		old := a.Identity().Executor
		a.gate.shut(recordstest.LoadExecutor)
		f.fence(a)
		f.pass(time.Minute)
		if a.returned() || a.Identity().Executor != old {
			t.Fatal("it went on without knowing who fenced it")
		}
		a.gate.openAgain()
		f.await("it is another", func() bool { return a.Identity().Executor != old && a.Status().State == records.Active })
	})

	rule(t, "APendingReconcilerIsNotWaitedFor", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var asked atomic.Int64
		req := ask("k")
		req.Terms.Reconciler = takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			asked.Add(1)
			return takeover.FoundPending(4 * time.Minute), nil
		})
		_, _ = begin(nodes[0], req)
		f.die(nodes[0])
		f.fence(nodes[0])
		b := nodes[1]
		old := b.Identity().Executor
		second := do(b, req, refuse(t))
		f.await("it is asked", func() bool { return asked.Load() == 1 })
		f.fence(b)
		since := time.Now()
		f.await("it is another", func() bool { return b.Identity().Executor != old && b.Status().State == records.Active })
		if took := time.Since(since); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		(<-second).fails(t, takeover.ErrNotServing)
		if r := stands(t, b, req, records.InProgress); r.Executor != old {
			t.Errorf("the record is %s's", r.Executor)
		}
	})
}

// leaseCases are those about an owner that can no longer beat.
func leaseCases(t *testing.T) {
	for name, err := range map[string]error{
		"Unavailable": records.ErrUnavailable, "Deadline": context.DeadlineExceeded, "Cancelled": context.Canceled,
		"Invalid": records.ErrInvalid, "Corrupt": records.ErrCorrupt, "NotFound": records.ErrNotFound,
		"SchemaTooOld": records.ErrSchemaTooOld, "WrongCluster": records.ErrWrongCluster, "Unheard": errors.New("unheard of"),
	} {
		rule(t, "K50_WhateverTheHeartbeatsError/"+name, func(t *testing.T, f *fleet) {
			m := f.start(takeover.Config{}, "a")[0]
			h, _ := begin(m, askOnce("k"))
			last := m.row(t).HeartbeatAt
			stop := m.gate.Always(recordstest.Heartbeat, recordstest.Fault{Err: fmt.Errorf("heartbeat: %w", err)})
			f.await("the work ends", func() bool { return h.ending.Load() != nil })
			if after := h.ending.Load().at.Sub(last); !h.ended(takeover.ErrLeaseLost) || after > 12*time.Second+20*time.Millisecond {
				t.Errorf("it ended %s after the last heartbeat, for %v", after, h.ending.Load().cause)
			}
			stop()
			f.await("it goes on afterwards", func() bool { return m.Status().HeartbeatAge < 2*time.Second })
			nobodyFenced(t, m)
		})
	}

	rule(t, "K50_AHeartbeatThatHangs", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		h, _ := begin(m, askOnce("k"))
		last := m.row(t).HeartbeatAt
		m.gate.freeze()
		f.await("the work ends", func() bool { return h.ending.Load() != nil })
		if after := h.ending.Load().at.Sub(last); !h.ended(takeover.ErrLeaseLost) || after > 12*time.Second+20*time.Millisecond {
			t.Errorf("it ended %s after the last heartbeat, for %v", after, h.ending.Load().cause)
		}
	})
}
