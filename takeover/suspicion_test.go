package takeover_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// patient is a request whose caller outlasts several leases.
func patient(key string) takeover.Request {
	req := ask(key)
	req.Wait = time.Hour
	return req
}

func TestSuspicion(t *testing.T) {
	t.Parallel()
	rule(t, "OfARefusedAttestedOwnerIsConfirmedByAWitnessInUnderASecond", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		var runs atomic.Int64
		second := do(nodes[1], patient("k"), instant(&runs, "second"))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		f.pass(3 * time.Second)
		since := time.Now()
		f.die(nodes[0])
		(<-second).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took > 100*time.Millisecond {
			t.Errorf("a broken watch and two refusals took %s", took)
		}
		if nodes[1].calls.witnesses.Load() == 0 {
			t.Error("without a witness")
		}
		ran(t, &runs, 1)
	})

	rule(t, "OfARefusedOwnerThatNobodyWatchedLastsConfirmDown", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		since := time.Now()
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took < 300*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})

	rule(t, "OfAnUnattestedOwnerLastsTheProbeBudget", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		if err := nodes[0].gate.Store.Attest(t.Context(), nodes[0].Identity().Executor, false); err != nil {
			t.Fatal(err)
		}
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		since := time.Now()
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took < 5*time.Second || took > 8*time.Second {
			t.Errorf("it took %s", took)
		}
	})

	rule(t, "OfASilentOwnerLastsTheProbeBudget", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		nodes[0].gate.shut()
		f.isolate(nodes[0], blackhole, nodes[1:]...)
		since := time.Now()
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took < 5*time.Second || took > 9*time.Second {
			t.Errorf("it took %s", took)
		}
	})

	rule(t, "IsRefutedByAHeartbeat", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		// Nobody reaches a, and yet it beats.
		f.isolate(nodes[0], blackhole, nodes[1:]...)
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("b has tried to fence it", func() bool { return nodes[1].gate.Calls(recordstest.Fence) >= 3 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})

	rule(t, "ByAnObserverWhoseOwnHeartbeatsDoNotLandIsNotEnough", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		f.isolate(nodes[0], blackhole, nodes[1:]...)
		// The store takes nobody's heartbeat for as long as the suspicion lasts,
		// so that none of the suspect's says nothing.
		for _, m := range nodes {
			m.gate.shut(recordstest.Heartbeat)
		}
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("b has tried to fence it", func() bool { return nodes[1].gate.Calls(recordstest.Fence) > 0 })
		f.pass(100 * time.Millisecond)
		if !nodes[1].log.has(records.ErrObserverUnfit.Error()) {
			t.Error("it was fit to fence")
		}
		nobodyFenced(t, nodes[0])
		for _, m := range nodes {
			m.gate.openAgain()
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})

	rule(t, "IsDroppedForALeaseWhenAWitnessReachesTheSuspect", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		f.between(nodes[1], nodes[0]).set(cut)
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("the witness is asked", func() bool { return nodes[1].calls.witnesses.Load() > 0 })
		f.pass(time.Second)
		before := nodes[1].calls.witnesses.Load()
		f.pass(12 * time.Second)
		if now := nodes[1].calls.witnesses.Load(); now != before {
			t.Errorf("a witness was asked %d times within the lease", now-before)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if n := nodes[1].gate.Calls(recordstest.Fence); n != 0 {
			t.Errorf("%d fences were tried", n)
		}
	})

	rule(t, "ByAnObserverThatIsCutOffFromEveryoneEndsInAbstention", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		nodes[0].gate.shut(recordstest.Heartbeat) // so that only the abstention protects it
		f.isolate(nodes[1], blackhole, nodes[0], nodes[2])
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("b abstains", func() bool { return nodes[1].log.has("outcome=abstained") })
		if n := nodes[1].gate.Calls(recordstest.Fence); n != 0 {
			t.Errorf("%d fences were tried", n)
		}
		nodes[0].gate.openAgain()
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})

	rule(t, "AgainstPolicyLeaseIsNeverEnough", func(t *testing.T, f *fleet) {
		nodes := f.start(leased(), "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		beat := nodes[0].row(t).HeartbeatAt
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		dead := nodes[0].row(t)
		if after := dead.FencedAt.Sub(beat); dead.State != records.Fenced || after < dead.LeaseTTL {
			t.Errorf("it is %s %s after its last heartbeat", dead.State, after)
		}
		if n := nodes[1].calls.witnesses.Load(); n != 0 {
			t.Errorf("%d witnesses were asked for nothing", n)
		}
	})

	rule(t, "OfADrainingOwnerIsLikeAnyOther", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		nodes[0].Drain()
		f.await("it drains", func() bool { return nodes[0].row(t).State == records.Draining })
		f.die(nodes[0])
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
	})

	rule(t, "OfALoneSuspectNeedsNoWitness", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
	})

	rule(t, "IsSharedByAllWhoWait", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		keys := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
		for _, k := range keys {
			_, _ = begin(nodes[0], ask(k))
		}
		f.die(nodes[0])
		var runs atomic.Int64
		var waiting []<-chan answered
		for _, k := range keys {
			waiting = append(waiting, do(nodes[1], patient(k), instant(&runs, "second")))
		}
		for _, w := range waiting {
			(<-w).check(t, takeover.TookOver, "second")
		}
		if n := nodes[1].calls.witnesses.Load(); n != 1 {
			t.Errorf("%d witnesses for one death", n)
		}
		ran(t, &runs, int64(len(keys)))
	})
}

// suspicionCases are those about who may be declared dead.
func suspicionCases(t *testing.T) {
	rule(t, "K43_StoreFrozenForEveryoneForTwoLeases", func(t *testing.T, f *fleet) {
		for _, config := range []takeover.Config{{}, leased()} {
			p := string(config.Policy)
			nodes := f.start(config, "a"+p, "b"+p, "c"+p)
			f.attested(nodes...)
			key := patient("k" + p)
			h := newHeld()
			first := do(nodes[0], key, func(ctx context.Context) takeover.Completion { return h.stubborn(ctx) })
			<-h.begun
			waiting := do(nodes[1], key, refuse(t))
			f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
			for _, m := range nodes {
				m.gate.freeze()
			}
			close(h.finish) // and its result cannot be stored
			f.pass(30 * time.Second)
			for _, m := range nodes {
				m.gate.openAgain()
			}
			(<-first).check(t, takeover.Executed, "held")
			(<-waiting).check(t, takeover.Waited, "held")
			f.pass(20 * time.Second) // more than a lease
			nobodyFenced(t, nodes[0])
			f.serving(nodes...)
		}
	})

	rule(t, "K44_OnlyOneObserversLinkToTheStoreIsFrozen", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		b := nodes[1]
		waiting := do(b, patient("k"), refuse(t))
		f.await("b watches", func() bool { return b.calls.watches.Load() > 0 })
		b.gate.freeze()
		f.isolate(b, blackhole, nodes[0]) // and it does not reach the owner either
		f.pass(40 * time.Second)
		b.gate.openAgain() // now it believes that everybody has been dead for two leases
		f.pass(20 * time.Second)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if n := f.count(fenced, func(e event) bool { return e.node == "b" }); n != 0 {
			t.Errorf("it fenced %d", n)
		}
		if state := nodes[0].row(t).State; state != records.Active {
			t.Errorf("the owner is %s", state)
		}
	})

	rule(t, "K45_KilledAndRestartedOnTheSameSlotAndURL", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], ask("on the new boot"))
		_, _ = begin(nodes[0], ask("elsewhere"))
		f.die(nodes[0])
		since := time.Now()
		again := f.reboot(nodes[0])
		f.serving(again, nodes[1])
		if took := time.Since(since); took > 3*time.Second {
			t.Errorf("it serves after %s", took)
		}
		var runs atomic.Int64
		(<-do(again, ask("on the new boot"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		(<-do(nodes[1], ask("elsewhere"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if old := nodes[0].row(t); old.State != records.Fenced || old.FencedBy != again.Identity().Executor {
			t.Errorf("the old boot is %s by %s", old.State, old.FencedBy)
		}
	})

	rule(t, "K45_ANewBootAtTheURLIsAtOnceKnownForWhatItIs", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], ask("k"))
		var runs atomic.Int64
		waiting := do(nodes[1], patient("k"), instant(&runs, "second"))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		f.die(nodes[0])
		since := time.Now()
		f.reboot(nodes[0])
		(<-waiting).check(t, takeover.TookOver, "second")
		if took := time.Since(since); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := f.count(fenced, func(event) bool { return true }); n > 1 {
			t.Errorf("%d fences", n)
		}
	})
}
