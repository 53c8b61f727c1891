package takeover_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	rule(t, "FailsReadinessFirst", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		h, first := begin(m, ask("k"))
		m.gate.freeze(recordstest.Drain)
		m.Drain()
		f.await("it is not ready", func() bool { return !m.Status().Serving() })
		if state := m.row(t).State; state != records.Active {
			t.Errorf("the store had been told %s before", state)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "ClaimsNothingEvenBeforeTheStoreKnows", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		a := nodes[0]
		_, _ = begin(nodes[1], ask("dead"))
		h, first := begin(a, ask("k"))
		a.gate.shut(recordstest.Drain)
		a.Drain()
		f.await("it drains", func() bool { return a.Status().State == records.Draining })
		f.die(nodes[1])
		f.fence(nodes[1])
		beats := a.gate.Calls(recordstest.Heartbeat)
		for range 100 {
			(<-do(a, ask("fresh"), refuse(t))).fails(t, takeover.ErrNotServing)
			f.pass(20 * time.Millisecond)
		}
		impatient := ask("dead")
		impatient.Wait = 20 * time.Second
		(<-do(a, impatient, refuse(t))).check(t, takeover.InProgress, "")
		if n := a.gate.Calls(recordstest.Heartbeat) - beats; n > 30 {
			t.Errorf("%d heartbeats in 20 s: refused requests must not beat", n)
		}
		if _, err := a.gate.Store.Load(t.Context(), ask("fresh").Key.ID()); err == nil {
			t.Error("it claimed a key")
		}
		stands(t, a, ask("dead"), records.InProgress)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "GoesOnReplayingAndWaiting", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{MemoryBytes: -1}, "a", "b")
		var runs atomic.Int64
		<-do(nodes[1], ask("done"), instant(&runs, "done"))
		h, first := begin(nodes[0], ask("k"))
		other, second := begin(nodes[1], ask("other"))
		nodes[0].Drain()
		f.await("the store knows", func() bool { return nodes[0].row(t).State == records.Draining })
		(<-do(nodes[0], ask("done"), refuse(t))).check(t, takeover.Replayed, "done")
		here, there := do(nodes[0], ask("k"), refuse(t)), do(nodes[0], ask("other"), refuse(t))
		f.await("both wait", func() bool { return nodes[0].Waiting() == 2 })
		close(other.finish)
		(<-there).check(t, takeover.Waited, "held")
		close(h.finish)
		(<-here).check(t, takeover.Waited, "held")
		(<-first).check(t, takeover.Executed, "held")
		(<-second).check(t, takeover.Executed, "held")
		if err := f.end(nodes[0]); err != nil {
			t.Errorf("Run = %v", err)
		}
	})

	rule(t, "CancelsWhatOutlastsItsTimeout", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{DrainTimeout: time.Minute}, "a")[0]
		h, first := begin(m, askOnce("k"))
		since := time.Now()
		if err := f.gone(m); err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(since); took < time.Minute || took > 62*time.Second {
			t.Errorf("it took %s", took)
		}
		if !h.ended(takeover.ErrStopped) {
			t.Error("the work was not told")
		}
		(<-first).check(t, takeover.Executed, "")
		stands(t, m, askOnce("k"), records.Unknown)
		if state := m.row(t).State; state != records.Gone {
			t.Errorf("the executor is %s", state)
		}
	})

	rule(t, "TellsWhoStillWaitsToAskElsewhere", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{DrainTimeout: 10 * time.Second}, "a", "b")
		h, first := begin(nodes[1], ask("k"))
		waiting := do(nodes[0], ask("k"), refuse(t))
		f.await("it waits", func() bool { return nodes[0].Waiting() == 1 })
		if err := f.gone(nodes[0]); err != nil {
			t.Errorf("Run = %v", err)
		}
		(<-waiting).fails(t, takeover.ErrNotServing)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "LeavesThoughTheStoreIsAway", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		nodes[0].gate.shut()
		if err := f.gone(nodes[0]); err != nil {
			t.Errorf("Run = %v", err)
		}
		nodes[0].hangUp()
		if state := nodes[0].row(t).State; state != records.Active {
			t.Errorf("the executor is %s", state)
		}
	})

	rule(t, "EndsWhenFencedMeanwhile", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		nodes[0].Drain()
		f.await("it drains", func() bool { return nodes[0].row(t).State == records.Draining })
		f.fence(nodes[0])
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		f.await("the work is told", func() bool { return h.ended(takeover.ErrExecutorFenced) })
		if err := f.end(nodes[0]); err != nil {
			t.Errorf("Run = %v", err)
		}
		<-first
		if state := nodes[0].row(t).State; state != records.Fenced {
			t.Errorf("the executor is %s", state)
		}
	})

	rule(t, "LeavesRecordsOfAGoneExecutorToOthers", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		orphan(t, nodes[0], ask("k"))
		if err := f.gone(nodes[0]); err != nil {
			t.Errorf("Run = %v", err)
		}
		nodes[0].hangUp()
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		nobodyFenced(t, nodes[1])
	})
}

// drainCases are those about an owner that leaves.
func drainCases(t *testing.T) {
	rule(t, "K42_WithAJobOfThreeLeases", func(t *testing.T, f *fleet) {
		for _, config := range []takeover.Config{{}, leased()} {
			key := ask("k " + string(config.Policy))
			nodes := f.start(config, "a"+string(config.Policy), "b"+string(config.Policy))
			a := nodes[0]
			h, first := begin(a, key)
			waiting := do(nodes[1], key, refuse(t))
			f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
			a.Drain()
			f.await("it drains", func() bool { return a.row(t).State == records.Draining })
			beat := a.row(t).Beat
			for range 9 {
				f.pass(5 * time.Second)
				if o := nodes[1].asker.Probe(t.Context(), a.row(t), key.Key.ID(), 0); o.Verdict.String() != "running" {
					t.Errorf("a probe finds %s: %v", o.Verdict, o.Err)
				}
				if a.Status().Serving() || a.returned() {
					t.Error("ready, or gone, while it drains")
				}
			}
			if now := a.row(t).Beat; now < beat+30 {
				t.Errorf("%d heartbeats in three leases", now-beat)
			}
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
			(<-waiting).check(t, takeover.Waited, "held")
			if err := f.end(a); err != nil {
				t.Errorf("Run = %v", err)
			}
			if state := a.row(t).State; state != records.Gone {
				t.Errorf("the executor is %s", state)
			}
		}
		if n := len(f.of(tookOver)) + len(f.of(fenced)); n != 0 {
			t.Errorf("%d fences and take-overs", n)
		}
	})
}

// orphan puts a record in progress that its executor knows nothing of, as a
// reserve does whose reply was lost together with everything that was to come.
func orphan(t testing.TB, m *member, req takeover.Request) records.Record {
	t.Helper()
	got, err := m.gate.Store.Reserve(t.Context(), records.Reservation{
		ID: req.Key.ID(), Realm: req.Key.Realm, Key: req.Key.Key, Operation: req.Operation, Resource: req.Resource,
		Fingerprint: req.Fingerprint, Request: req.Stored, By: m.Identity().Executor, Attempt: records.NewToken(),
	})
	if err != nil || !got.Owned {
		t.Fatalf("reserve: owned %t, %v", got.Owned, err)
	}
	return got.Record
}
