package takeover_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// straggler is a store on whose way the first reserve is held up. A caller
// that does not wait for it leaves alone; the reserve lands all the same.
type straggler struct {
	records.Store
	first sync.Once
	land  chan struct{} // closed: it lands
	over  chan struct{} // closed when it has
}

func (s *straggler) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	var late bool
	s.first.Do(func() { late = true })
	if !late {
		return s.Store.Reserve(ctx, r)
	}
	var got records.Reserved
	var err error
	go func() {
		defer close(s.over)
		<-s.land
		got, err = s.Store.Reserve(context.WithoutCancel(ctx), r)
	}()
	select {
	case <-s.over:
		return got, err
	case <-ctx.Done():
		return records.Reserved{}, context.Cause(ctx)
	}
}

// TestLate holds rules about what happens a little too late: found by the
// model check, each with its trace there.
func TestLate(t *testing.T) {
	rule(t, "NotAppliedCountsFromWhenItWasAskedNotAnswered", func(t *testing.T, f *fleet) {
		var asked []time.Time
		req := askKnowing("k", func(ctx context.Context, _ records.Record, _ takeover.Request) (takeover.Finding, error) {
			asked = append(asked, time.Now())
			<-time.After(4 * time.Second) // what it saw is old when it arrives
			return takeover.FoundNotApplied(), nil
		})
		req.Terms.Settle = 10 * time.Second
		a, b := abandoned(f, req)
		fenced := b.executor(t, a.Identity().Executor).FencedAt
		(<-do(b, req, func(context.Context) takeover.Completion { return created("second") })).check(t, takeover.TookOver, "second")
		if last := asked[len(asked)-1]; last.Sub(fenced) < req.Terms.Settle {
			t.Errorf("executed on an answer to a question asked %s after the fence; settle is %s", last.Sub(fenced), req.Terms.Settle)
		}
		if len(asked) < 2 {
			t.Error("the early answer was not asked again")
		}
	})

	rule(t, "OverdueWorkIsNotFreedByAFinding", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundNotApplied(), nil
		})
		req.Terms.WorkTimeout = 20 * time.Second
		h := newHeld()
		first := do(m, req, h.stubborn)
		(<-first).check(t, takeover.Executed, "")
		stands(t, m, req, records.Unknown)
		close(h.finish)
	})

	rule(t, "TrustCountsFromTheFirstRegistrationThatMayHaveLanded", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.Once(recordstest.Register, recordstest.LostReply)
		heal := m.gate.shut(recordstest.Register, recordstest.Heartbeat)
		m.serve()
		f.run(m)
		f.pass(time.Minute)
		heal()
		f.await("it is registered", func() bool { return m.log.has("registered") })
		if age := m.Status().HeartbeatAge; age < (takeover.Config{}).WithDefaults().LeaseTTL {
			t.Errorf("a minute after it was registered its lease counts as %s old", age)
		}
	})

	rule(t, "AnEffectThatComesLateWaitsForAHeartbeat", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		begun, effect := make(chan struct{}), make(chan struct{})
		first := do(m, askOnce("k"), func(ctx context.Context) takeover.Completion {
			close(begun)
			<-effect
			if err := takeover.BeforeEffect(ctx); err != nil {
				t.Errorf("BeforeEffect = %v", err)
			}
			return created("late")
		})
		<-begun
		heal := m.gate.shut(recordstest.Heartbeat)
		f.pass(m.startLimit() + time.Second) // too old to begin, young enough to go on
		close(effect)
		f.pass(time.Second)
		select {
		case <-first:
			t.Fatal("the effect began without a heartbeat")
		default:
		}
		heal()
		(<-first).check(t, takeover.Executed, "late")
	})

	rule(t, "AnEffectAfterTheLeaseIsRefused", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.shut(recordstest.Heartbeat)
		var got error
		first := do(m, askOnce("k"), func(ctx context.Context) takeover.Completion {
			<-ctx.Done()
			m.gate.openAgain()
			f.pass(2 * time.Second) // heartbeats land again, and bring no trust to old work
			got = takeover.BeforeEffect(ctx)
			return takeover.Completion{}
		})
		<-first
		if !errors.Is(got, takeover.ErrLeaseLost) {
			t.Errorf("BeforeEffect = %v, want ErrLeaseLost", got)
		}
		if err := takeover.BeforeEffect(t.Context()); err == nil {
			t.Error("BeforeEffect allows effects outside of work")
		}
	})

	rule(t, "AReserveThatLandsAfterItsCallerWasRefusedLeavesTheKeyFree", func(t *testing.T, f *fleet) {
		open := f.open
		s := &straggler{land: make(chan struct{}), over: make(chan struct{})}
		f.open = func(t testing.TB, node string) records.Store {
			s.Store = open(t, node)
			return s
		}
		m := f.start(takeover.Config{}, "a")[0]
		(<-do(m, askOnce("k"), refuse(t))).fails(t, records.ErrUnavailable)
		f.pass(5 * time.Second)
		close(s.land)
		<-s.over
		f.await("nothing is left", func() bool { return m.Status().InProgress == 0 })
		stands(t, m, askOnce("k"), records.Released)
		var runs atomic.Int64
		(<-do(m, askOnce("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		ran(t, &runs, 1)
	})

	rule(t, "WhoseWorkWasBegunIsNotToldThatNothingWas", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		_, first := begin(m, ask("k"))
		m.stop()
		if err := f.end(m); err != nil {
			t.Errorf("Run = %v", err)
		}
		stands(t, m, ask("k"), records.InProgress)
		(<-first).check(t, takeover.InProgress, "")
	})

	rule(t, "WhoseWorkWasOvertakenIsNotToldThatNothingWas", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h := newHeld()
		first := do(nodes[0], ask("k"), h.stubborn)
		<-h.begun
		f.fence(nodes[0])
		next, second := begin(nodes[1], ask("k"))
		close(h.finish)
		f.await("it waits for its successor", func() bool { return nodes[0].log.has("overtaken") })
		f.pass(5 * time.Second)
		nodes[0].stop()
		(<-first).check(t, takeover.InProgress, "")
		close(next.finish)
		(<-second).check(t, takeover.TookOver, "held")
	})

	rule(t, "AFenceThatCouldNotBeSentIsNotSentOnOldEvidence", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		a, b := nodes[0], nodes[1]
		h, first := begin(a, ask("k"))
		waiting := do(b, patient("k"), refuse(t))
		f.await("b watches", func() bool { return b.calls.watches.Load() > 0 })
		a.gate.shut(recordstest.Heartbeat)
		heal := b.gate.shut(recordstest.Fence)
		f.isolate(a, cut, b, nodes[2])
		f.await("b is sure", func() bool { return b.log.has("outcome=confirmed") })
		f.isolate(a, healthy, b, nodes[2])
		f.pass(6 * time.Second) // everybody reaches the owner again
		heal()
		f.pass(2 * time.Second)
		a.gate.openAgain()
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, a)
	})
}
