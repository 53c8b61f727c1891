package takeover_test

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	uncertain := func(context.Context) takeover.Completion {
		return takeover.Completion{Response: records.Response{Status: 502}, Reason: "connection lost after send"}
	}

	rule(t, "UncertainEndsUnknownAndIsNeverRepeated", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		got := <-do(nodes[0], askOnce("k"), uncertain)
		got.check(t, takeover.Executed, "")
		if got.Completion.Response.Status != 502 || got.Record.State != records.Unknown {
			t.Errorf("the first caller was told %+v", got.Answer)
		}
		for _, m := range nodes {
			(<-do(m, askOnce("k"), refuse(t))).check(t, takeover.OutcomeUnknown, "")
		}
	})

	rule(t, "UncertainButAppliedIsFinalizedWithWhatWasFound", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(created("found").Response), nil
		})
		(<-do(nodes[0], req, uncertain)).check(t, takeover.Reconciled, "found")
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.Replayed, "found")
	})

	rule(t, "UncertainButNotAppliedFreesTheKeyAndTellsWhatTheWorkSaw", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		got := <-do(nodes[0], ask("k"), uncertain)
		got.check(t, takeover.Executed, "")
		if got.Completion.Response.Status != 502 || got.Record.State != records.Released {
			t.Errorf("the first caller was told %+v", got.Answer)
		}
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "second"))).check(t, takeover.Executed, "second")
	})

	rule(t, "ACommittedResponseIsNotWrittenAgain", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		got := <-do(nodes[0], ask("k"), func(ctx context.Context) takeover.Completion {
			claim, ok := takeover.ClaimFrom(ctx)
			if !ok {
				t.Error("the work has no claim")
			}
			c := created("committed")
			o := records.Outcome{Response: c.Response, Retention: time.Hour}
			if err := nodes[0].gate.Store.Finalize(ctx, claim.Record.ID, claim.Record.Fence(), o); err != nil {
				t.Error(err)
			}
			c.Kind = takeover.Committed
			return c
		})
		got.check(t, takeover.Executed, "committed")
		(<-do(nodes[1], ask("k"), refuse(t))).check(t, takeover.Replayed, "committed")
		if n := nodes[0].gate.Calls(recordstest.Finalize); n != 0 {
			t.Errorf("finalized %d times", n)
		}
	})

	rule(t, "AResponseThatCannotBeStoredEndsUnknown", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		got := <-do(m, askOnce("k"), func(context.Context) takeover.Completion {
			c := created("one")
			c.Response.Status = 7
			return c
		})
		got.check(t, takeover.Executed, "")
		stands(t, m, askOnce("k"), records.Unknown)
	})

	rule(t, "WorkEndsByItsTimeout", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		req := askOnce("k")
		req.Terms.WorkTimeout = 20 * time.Second
		since := time.Now()
		h, first := begin(m, req)
		(<-first).check(t, takeover.Executed, "")
		if took := time.Since(since); took != 20*time.Second || !h.ended(takeover.ErrWorkTimeout) {
			t.Errorf("it ended after %s for %v", took, h.ending.Load().cause)
		}
		stands(t, m, req, records.Unknown)
	})

	rule(t, "WorkThatIgnoresItsTimeoutKeepsItsEntryAndNotTheKey", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		req := askOnce("k")
		req.Terms.WorkTimeout = 20 * time.Second
		h := newHeld()
		first := do(nodes[0], req, h.stubborn)
		(<-first).check(t, takeover.Executed, "")
		stands(t, nodes[0], req, records.Unknown)
		f.pass(time.Minute)
		if o := nodes[1].asker.Probe(t.Context(), nodes[0].row(t), req.Key.ID(), 0); o.Verdict != probe.Running {
			t.Errorf("a probe finds %s", o.Verdict)
		}
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		close(h.finish)
		f.pass(time.Second)
		if n := nodes[0].Status().InProgress; n != 0 {
			t.Errorf("%d entries are left", n)
		}
		stands(t, nodes[0], req, records.Unknown)
	})

	for i, name := range []string{"Here", "Elsewhere"} {
		rule(t, "WorkThatDoesNotReturnIsNotDoneAgainMeanwhile/"+name, func(t *testing.T, f *fleet) {
			nodes := f.start(takeover.Config{}, "a", "b")
			req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return takeover.FoundNotApplied(), nil
			})
			req.Terms.WorkTimeout = 20 * time.Second
			h := newHeld()
			first := do(nodes[0], req, h.stubborn)
			(<-first).check(t, takeover.Executed, "")
			stands(t, nodes[0], req, records.Unknown)
			(<-do(nodes[i], req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
			close(h.finish)
			f.await("it has returned", func() bool { return nodes[0].Status().InProgress == 0 })
			var runs atomic.Int64
			(<-do(nodes[i], req, instant(&runs, "again"))).check(t, takeover.TookOver, "again")
			ran(t, &runs, 1)
		})
	}

	rule(t, "TheFirstCallerDoesNotWaitForTheOthersRead", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		h, first := begin(m, ask("k"))
		second := do(m, ask("k"), refuse(t))
		f.await("it waits", func() bool { return m.Waiting() == 1 })
		m.gate.shut(recordstest.Load)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		f.pass(10 * time.Second)
		select {
		case got := <-second:
			t.Fatalf("told %s, %v without reading the store", got.Outcome, got.err)
		default:
		}
		m.gate.openAgain()
		(<-second).check(t, takeover.Waited, "held")
	})
}

func TestLostReply(t *testing.T) {
	t.Parallel()
	lost := []recordstest.Fault{recordstest.LostReply, recordstest.Down, recordstest.LostReply}

	for _, c := range []struct {
		call   recordstest.Call
		result takeover.Completion
		want   records.State
	}{
		{recordstest.Reserve, created("one"), records.Finalized},
		{recordstest.Finalize, created("one"), records.Finalized},
		{recordstest.Release, takeover.Completion{Kind: takeover.Untouched, Response: records.Response{Status: 401}}, records.Released},
		{recordstest.MarkUnknown, takeover.Completion{Reason: "lost"}, records.Unknown},
	} {
		rule(t, "Of"+string(c.call)+"IsFoundOutByRepeatingIt", func(t *testing.T, f *fleet) {
			nodes := f.start(takeover.Config{}, "a", "b")
			for _, fault := range lost {
				nodes[0].gate.Once(c.call, fault)
			}
			var runs atomic.Int64
			counted := func(context.Context) takeover.Completion {
				runs.Add(1)
				return c.result
			}
			(<-do(nodes[0], askOnce("k"), counted)).check(t, takeover.Executed, "")
			ran(t, &runs, 1)
			if r := stands(t, nodes[0], askOnce("k"), c.want); r.Takeovers != 0 {
				t.Errorf("%d take-overs", r.Takeovers)
			}
			if n := nodes[0].Status().InProgress; n != 0 {
				t.Errorf("%d entries are left", n)
			}
		})
	}

	rule(t, "OfATakeOverIsFoundOutByRepeatingIt", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], ask("k"))
		f.die(nodes[0])
		f.fence(nodes[0])
		for _, fault := range lost {
			nodes[1].gate.Once(recordstest.TakeOver, fault)
		}
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "second"))).check(t, takeover.TookOver, "second")
		ran(t, &runs, 1)
		if r := stands(t, nodes[1], ask("k"), records.Finalized); r.Takeovers != 1 {
			t.Errorf("%d take-overs", r.Takeovers)
		}
	})

	rule(t, "OfAReserveThatStaysLostEndsInARelease", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		a := nodes[0]
		heal := a.gate.Always(recordstest.Reserve, recordstest.LostReply)
		(<-do(a, ask("k"), refuse(t))).fails(t, records.ErrUnavailable)
		stands(t, a, ask("k"), records.InProgress)
		if o := nodes[1].asker.Probe(t.Context(), a.row(t), ask("k").Key.ID(), 0); o.Verdict != probe.Running {
			t.Errorf("a probe finds %s: the claim may have landed", o.Verdict)
		}
		heal()
		f.await("it is released", func() bool { return a.record(t, ask("k")).State == records.Released })
		f.await("its entry is gone", func() bool { return a.Status().InProgress == 0 })
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
	})
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	rule(t, "OfItsOwnIsTakenOverByADuplicate", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		r := orphan(t, m, ask("k"))
		var runs atomic.Int64
		(<-do(m, ask("k"), instant(&runs, "one"))).check(t, takeover.TookOver, "one")
		if now := stands(t, m, ask("k"), records.Finalized); now.Epoch != r.Epoch+1 {
			t.Errorf("epoch %d after %d", now.Epoch, r.Epoch)
		}
	})

	rule(t, "OfALiveExecutorIsTakenOverOnItsSignature", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		orphan(t, nodes[0], ask("k"))
		var runs atomic.Int64
		(<-do(nodes[1], ask("k"), instant(&runs, "one"))).check(t, takeover.TookOver, "one")
		if all := f.of(tookOver); len(all) != 1 || all[0].reason != "not running" {
			t.Errorf("took over %+v", all)
		}
		nobodyFenced(t, nodes[0])
	})

	rule(t, "IsNotExecutedBlindly", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		for i, m := range nodes {
			req := askOnce("k" + m.name)
			orphan(t, nodes[0], req)
			(<-do(nodes[i], req, refuse(t))).check(t, takeover.OutcomeUnknown, "")
		}
	})

	rule(t, "OfItsOwnIsFoundByTheAudit", func(t *testing.T, f *fleet) {
		var runs atomic.Int64
		config := takeover.Config{Recover: func(r records.Record) (takeover.Terms, takeover.Work, bool) {
			return takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "audited"), r.Operation == "create-payment"
		}}
		m := f.start(config, "a")[0]
		r := orphan(t, m, ask("k"))
		busy, first := begin(m, ask("busy"))
		f.await("it is audited", func() bool { return m.record(t, ask("k")).State == records.Finalized })
		if now := m.record(t, ask("k")); now.Epoch != r.Epoch+1 || string(now.Response.Body) != "audited" {
			t.Errorf("epoch %d after %d, %q", now.Epoch, r.Epoch, now.Response.Body)
		}
		f.pass(time.Minute)
		if epoch := stands(t, m, ask("busy"), records.InProgress).Takeovers; epoch != 0 {
			t.Error("the audit took over what is running")
		}
		close(busy.finish)
		(<-first).check(t, takeover.Executed, "held")
		ran(t, &runs, 1)
	})
}

// outcomeCases are those about how work and the store may end an execution.
func outcomeCases(t *testing.T) {
	rule(t, "K07_AResultIsKeptForLongerThanTheLease", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		a, b := nodes[0], nodes[1]
		h, first := begin(a, ask("k"))
		patient := ask("k")
		patient.Wait = 5 * time.Minute
		waiting := do(b, patient, refuse(t))
		f.await("b watches", func() bool { return b.calls.watches.Load() > 0 })
		for _, m := range nodes {
			m.gate.shut()
		}
		close(h.finish)
		for range 10 {
			f.pass(5 * time.Second)
			if o := b.asker.Probe(t.Context(), a.row(t), ask("k").Key.ID(), 0); o.Verdict != probe.Running {
				t.Fatalf("a probe finds %s", o.Verdict)
			}
			(<-do(b, ask("other"), refuse(t))).fails(t, records.ErrUnavailable)
		}
		stands(t, a, ask("k"), records.InProgress)
		for _, m := range nodes {
			m.gate.openAgain()
		}
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		(<-do(nodes[2], ask("k"), refuse(t))).check(t, takeover.Replayed, "held")
		f.pass(time.Minute)
		nobodyFenced(t, a)
		ran(t, &h.runs, 1)
	})

	rule(t, "K07_IfTheOwnerDiesTooItsRecordIsReconciled", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, _ := begin(nodes[0], ask("k"))
		for _, m := range nodes {
			m.gate.shut()
		}
		close(h.finish)
		f.pass(20 * time.Second)
		nodes[0].hangUp()
		for _, m := range nodes[1:] {
			m.gate.openAgain()
		}
		var asked atomic.Int64
		req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			asked.Add(1)
			return takeover.FoundApplied(created("held").Response), nil
		})
		req.Wait = 2 * time.Minute
		f.await("b serves again", func() bool { return nodes[1].Status().HeartbeatAge < time.Second })
		(<-do(nodes[1], req, refuse(t))).check(t, takeover.Reconciled, "held")
		ran(t, &asked, 1)
	})

	for name, work := range map[string]takeover.Work{
		"APanic":       func(context.Context) takeover.Completion { panic("boom") },
		"AnAbort":      func(context.Context) takeover.Completion { panic(http.ErrAbortHandler) },
		"AGoexit":      func(context.Context) takeover.Completion { runtime.Goexit(); return takeover.Completion{} },
		"ANilFunction": nil,
	} {
		rule(t, "K09_"+name+"EndsUnknown", func(t *testing.T, f *fleet) {
			m := f.start(takeover.Config{}, "a")[0]
			(<-do(m, askOnce("k"), work)).check(t, takeover.Executed, "")
			stands(t, m, askOnce("k"), records.Unknown)
			if n := m.Status().InProgress; n != 0 {
				t.Errorf("%d entries are left", n)
			}
			var runs atomic.Int64
			(<-do(m, ask("other"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		})
	}
}
