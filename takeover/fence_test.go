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

func TestFence(t *testing.T) {
	t.Parallel()
	rule(t, "OnAnExpiredLeaseNeedsNoProbe", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		f.pass(16 * time.Second)
		asked := nodes[1].calls.total()
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		if n := nodes[1].calls.total() - asked; n != 0 {
			t.Errorf("%d questions", n)
		}
	})

	rule(t, "IsHeldBackByTheBrakeAndPassesAfterALease", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("of a"))
		_, _ = begin(nodes[1], ask("of b"))
		var runs atomic.Int64
		f.die(nodes[0])
		(<-do(nodes[2], patient("of a"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		f.die(nodes[1])
		(<-do(nodes[2], patient("of b"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		first, second := nodes[0].row(t), nodes[1].row(t)
		if apart := second.FencedAt.Sub(first.FencedAt); apart < first.LeaseTTL || apart > 2*first.LeaseTTL {
			t.Errorf("the fences are %s apart", apart)
		}
		if !nodes[2].log.has(records.ErrBraked.Error()) {
			t.Error("the brake was never felt")
		}
	})

	rule(t, "OfTwoWhoSuspectEachOtherFencesOne", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c", "d", "e") // so many that the brake would let two pass
		f.attested(nodes...)
		a, b := nodes[0], nodes[1]
		_, _ = begin(a, ask("of a"))
		_, _ = begin(b, ask("of b"))
		var thaw []func()
		for _, m := range []*member{a, b} {
			thaw = append(thaw, m.gate.freeze(recordstest.Fence))
			m.gate.shut(recordstest.Heartbeat)
			for _, other := range nodes {
				if other != m {
					f.between(other, m).set(cut)
				}
			}
		}
		_ = do(a, patient("of b"), newHeld().work)
		_ = do(b, patient("of a"), newHeld().work)
		f.await("both fence", func() bool {
			return a.gate.Calls(recordstest.Fence) > 0 && b.gate.Calls(recordstest.Fence) > 0
		})
		for _, heal := range thaw {
			heal()
		}
		f.await("one is fenced", func() bool { return len(f.of(fenced)) > 0 })
		f.await("the other is refused", func() bool {
			unfit := records.ErrObserverUnfit.Error()
			return a.log.has(unfit) || b.log.has(unfit)
		})
		if n := len(f.of(fenced)); n != 1 {
			t.Errorf("%d fences", n)
		}
		if unfit := records.ErrObserverUnfit.Error(); a.log.has(unfit) == b.log.has(unfit) {
			t.Error("who was fenced was not the one who was refused")
		}
	})

	rule(t, "ByAnAsymmetricPartitionHitsNobodyWhoBeats", func(t *testing.T, f *fleet) {
		for i, how := range []fault{deaf, mute, blackhole} {
			names := []string{"a", "b", "c"}
			for j := range names {
				names[j] += string(rune('0' + i))
			}
			nodes := f.start(takeover.Config{}, names...)
			f.attested(nodes...)
			key := ask("k" + names[0])
			h, first := begin(nodes[0], key)
			req := key
			req.Wait = time.Hour
			// b and c cannot ask a; a can ask both.
			for _, m := range nodes[1:] {
				f.between(m, nodes[0]).set(how)
			}
			waiting := []<-chan answered{do(nodes[1], req, refuse(t)), do(nodes[2], req, refuse(t))}
			f.await("both have tried", func() bool {
				return nodes[1].gate.Calls(recordstest.Fence) > 0 && nodes[2].gate.Calls(recordstest.Fence) > 0
			})
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
			for _, w := range waiting {
				(<-w).check(t, takeover.Waited, "held")
			}
			nobodyFenced(t, nodes[0])
			for _, m := range nodes {
				if err := f.gone(m); err != nil {
					t.Errorf("Run = %v", err)
				}
				m.hangUp()
			}
		}
	})
}

// An address that refuses two nodes is taken for one without an executor (the
// design says so). What is promised then is that a live owner behind it learns
// of its fence and can change nothing any more.
func TestFenceOfALiveOwner(t *testing.T) {
	t.Parallel()
	rule(t, "EndsItsWorkAndRefusesItsResult", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		a := nodes[0]
		old := a.Identity().Executor
		h := newHeld()
		first := do(a, ask("k"), func(ctx context.Context) takeover.Completion {
			h.work(ctx)
			return created("late")
		})
		<-h.begun
		for _, m := range nodes[1:] {
			f.between(m, a).set(cut)
		}
		var runs atomic.Int64
		(<-do(nodes[1], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		(<-first).check(t, takeover.Waited, "second")
		if !h.ended(takeover.ErrExecutorFenced) {
			t.Error("the work was not told")
		}
		f.await("it is another", func() bool { return a.Identity().Executor != old && a.registered(t) })
		f.pass(time.Minute)
		(<-do(a, ask("other"), refuse(t))).fails(t, takeover.ErrNotServing) // nobody reaches it
		for _, m := range nodes[1:] {
			f.between(m, a).set(healthy)
		}
		f.serving(nodes...)
	})
}

func TestUnreached(t *testing.T) {
	t.Parallel()
	rule(t, "AfterAFenceANodeThatNobodyReachesTakesNothingOver", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		a, b := nodes[0], nodes[1]
		_, _ = begin(b, ask("k"))
		waiting := do(a, patient("k"), refuse(t))
		f.await("a watches", func() bool { return a.calls.watches.Load() > 0 })
		for _, m := range nodes[1:] {
			f.between(m, a).set(blackhole)
		}
		old := a.Identity().Executor
		f.fence(a)
		f.await("it is another", func() bool { return a.Identity().Executor != old && a.registered(t) })
		f.die(b)
		f.fence(b)
		f.pass(20 * time.Second)
		stands(t, a, ask("k"), records.InProgress)
		var runs atomic.Int64
		(<-do(nodes[2], patient("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		(<-waiting).check(t, takeover.Waited, "second")
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	rule(t, "OfAnUnreachableOwnerThatBeatsEndsWithTheAnswerOfTheStore", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		f.isolate(nodes[0], blackhole, nodes[1])
		f.pass(20 * time.Second)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		since := time.Now()
		(<-waiting).check(t, takeover.Waited, "held")
		if took := time.Since(since); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		nobodyFenced(t, nodes[0])
	})

	rule(t, "ReadsTheStoreNowAndThenWhateverTheOwnerSays", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], patient("k"), refuse(t))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		before := nodes[1].gate.Calls(recordstest.Load)
		f.pass(time.Minute)
		if n := nodes[1].gate.Calls(recordstest.Load) - before; n < 60/8 || n > 60*2/5+1 {
			t.Errorf("%d reads in a minute, want one every 5 s ± 50 %%", n)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
	})

	rule(t, "ThatBreaksWhileTheOwnerLivesIsTakenUpAgain", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], patient("k"), refuse(t))
		for range 5 {
			before := nodes[1].calls.watches.Load()
			f.await("b watches", func() bool {
				return nodes[1].calls.watches.Load() > before || before == 0 && nodes[1].calls.watches.Load() > 0
			})
			f.between(nodes[1], nodes[0]).set(cut)
			f.between(nodes[1], nodes[0]).set(healthy)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})
}
