package takeover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

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
}
