package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

func TestDo(t *testing.T) {
	t.Parallel()
	rule(t, "ExecutesOnceAndReplaysOnEveryNode", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var runs atomic.Int64
		(<-do(nodes[0], ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		(<-do(nodes[0], ask("k"), instant(&runs, "two"))).check(t, takeover.Replayed, "one")
		(<-do(nodes[1], ask("k"), instant(&runs, "three"))).check(t, takeover.Replayed, "one")
		ran(t, &runs, 1)
	})

	rule(t, "WhoAsksAfterTheAnswerHasNotWaited", func(t *testing.T, f *fleet) {
		node := f.start(takeover.Config{}, "a")[0]
		var runs atomic.Int64
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				for i := range 50 {
					req := ask(fmt.Sprint(caller, ".", i))
					for n, want := range []takeover.OutcomeKind{takeover.Executed, takeover.Replayed} {
						if got, err := node.Do(t.Context(), req, instant(&runs, "one")); err != nil || got.Outcome != want {
							t.Errorf("ask %d: %s, %v, want %s", n, got.Outcome, err, want)
						}
					}
				}
			})
		}
		callers.Wait()
		ran(t, &runs, 400)
	})

	rule(t, "DuplicatesOnAnyNodeWaitForTheOwner", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		second := do(nodes[1], ask("k"), refuse(t))
		third := do(nodes[0], ask("k"), refuse(t))
		f.await("both wait", func() bool { return nodes[0].Waiting() == 1 && nodes[1].Waiting() == 1 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-second).check(t, takeover.Waited, "held")
		(<-third).check(t, takeover.Waited, "held")
	})

	rule(t, "AWaitThatEndsIsToldThatItRuns", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		for _, wait := range []time.Duration{0, 7 * time.Second} {
			for _, m := range nodes {
				impatient := ask("k")
				impatient.Wait = wait
				since := time.Now()
				got := <-do(m, impatient, refuse(t))
				got.check(t, takeover.InProgress, "")
				if got.RetryAfter <= 0 {
					t.Error("no time to retry after")
				}
				if waited := time.Since(since); waited != wait {
					t.Errorf("waited %s, want %s", waited, wait)
				}
			}
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "AnswersAreWhatTheStoreKeeps", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{MemoryBytes: -1}, "a", "b")
		var runs atomic.Int64
		<-do(nodes[0], ask("k"), instant(&runs, "one"))
		want := stands(t, nodes[0], ask("k"), records.Finalized)
		got := <-do(nodes[1], ask("k"), refuse(t))
		if got.Record.Epoch != want.Epoch || got.Record.Response.Headers[0] != want.Response.Headers[0] {
			t.Errorf("answer %+v, stored %+v", got.Record, want)
		}
	})

	rule(t, "AReleasedKeyGoesToTheNextWhoWaits", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		begun, finish := make(chan struct{}), make(chan struct{})
		first := do(nodes[0], ask("k"), func(context.Context) takeover.Completion {
			close(begun)
			<-finish
			return takeover.Completion{Kind: takeover.Untouched, Response: records.Response{Status: 401}}
		})
		<-begun
		var runs atomic.Int64
		waiting := []<-chan answered{
			do(nodes[0], ask("k"), instant(&runs, "next")), do(nodes[0], ask("k"), instant(&runs, "next")),
			do(nodes[1], ask("k"), instant(&runs, "next")), do(nodes[1], ask("k"), instant(&runs, "next")),
		}
		f.await("all wait", func() bool { return nodes[0].Waiting() == 2 && nodes[1].Waiting() == 2 })
		close(finish)
		got := <-first
		got.check(t, takeover.Executed, "")
		if got.Completion.Response.Status != 401 || got.Record.State != records.Released {
			t.Errorf("the first caller was told %+v of a record that is %s", got.Completion, got.Record.State)
		}
		executed := 0
		for _, w := range waiting {
			a := <-w
			if a.Outcome == takeover.Executed {
				executed++
				continue
			}
			if a.Outcome != takeover.Replayed {
				a.check(t, takeover.Waited, "next")
			}
		}
		if executed != 1 {
			t.Errorf("%d were told that they executed", executed)
		}
		ran(t, &runs, 1)
	})

	rule(t, "ExecutesNothingWhileTheStoreIsAway", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		for _, m := range nodes {
			m.gate.shut()
			for range 2 {
				(<-do(m, ask("k"), refuse(t))).fails(t, records.ErrUnavailable)
			}
			m.gate.openAgain()
		}
		var runs atomic.Int64
		(<-do(nodes[0], ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
	})

	rule(t, "RefusesWhatCanNeverBeStored", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a")
		huge := ask("k")
		huge.Resource = string(make([]byte, records.MaxFieldBytes+1))
		(<-do(nodes[0], huge, refuse(t))).fails(t, records.ErrInvalid)
		if n := nodes[0].Status().InProgress; n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})

	rule(t, "AnswersNothingBeforeItServes", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		(<-do(m, ask("k"), refuse(t))).fails(t, takeover.ErrNotServing)
	})
}

func TestWaiters(t *testing.T) {
	t.Parallel()
	rule(t, "AClientThatHangsUpDoesNotEndTheWork", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		ctx, hangUp := context.WithCancelCause(t.Context())
		h := newHeld()
		gone := errors.New("client is gone")
		first := doWith(ctx, nodes[0], ask("k"), h.work)
		<-h.begun
		hangUp(gone)
		(<-first).fails(t, gone)
		f.pass(time.Minute)
		if e := h.ending.Load(); e != nil {
			t.Fatalf("the work's context ended: %v", e.cause)
		}
		close(h.finish)
		f.pass(time.Second)
		(<-do(nodes[1], ask("k"), refuse(t))).check(t, takeover.Replayed, "held")
	})

	rule(t, "OneThatGivesUpCancelsNothing", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		for _, m := range nodes {
			ctx, giveUp := context.WithCancel(t.Context())
			quitter, stayer := doWith(ctx, m, ask("k"), refuse(t)), do(m, ask("k"), refuse(t))
			f.await("both wait", func() bool { return m.Waiting() == 2 })
			giveUp()
			(<-quitter).fails(t, context.Canceled)
			defer func() { (<-stayer).check(t, takeover.Waited, "held") }()
		}
		f.pass(time.Second)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "TheLastToGiveUpEndsTheWatch", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		ctx, giveUp := context.WithCancel(t.Context())
		quitter := doWith(ctx, nodes[1], ask("k"), refuse(t))
		f.await("it watches", func() bool { return nodes[1].calls.watches.Load() == 1 })
		giveUp()
		<-quitter
		f.pass(time.Second)
		asked, read := nodes[1].calls.total(), nodes[1].gate.statements(recordstest.Load)
		f.pass(40 * time.Second) // less than an attestation
		if now := nodes[1].calls.probes.Load() + nodes[1].calls.watches.Load(); now > asked {
			t.Errorf("it asked %d times more", now-asked)
		}
		if now := nodes[1].gate.statements(recordstest.Load); now != read {
			t.Errorf("it read %d times more", now-read)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "AnAnswerThatStandsIsNotCountedAsAWait", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{WaitersPerNode: 1, MemoryBytes: -1}, "a")[0]
		var runs atomic.Int64
		(<-do(m, ask("done"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		h, first := begin(m, ask("k"))
		waiting := do(m, ask("k"), refuse(t))
		f.await("it waits", func() bool { return m.Waiting() == 1 })
		(<-do(m, ask("done"), refuse(t))).check(t, takeover.Replayed, "one")
		other := ask("done")
		other.Fingerprint = records.FingerprintOf("another")
		(<-do(m, other, refuse(t))).check(t, takeover.Reused, "")
		for range 20 {
			now := ask("done")
			now.Wait = 0
			(<-do(m, now, refuse(t))).check(t, takeover.Replayed, "one")
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
	})

	for name, c := range map[string]struct {
		config  takeover.Config
		another takeover.Request // one that is not counted with "k"
	}{
		"AreBoundedPerKey":   {takeover.Config{WaitersPerKey: 2}, ask("other")},
		"AreBoundedPerRealm": {takeover.Config{WaitersPerRealm: 2}, func() takeover.Request { r := ask("k"); r.Key.Realm = "other"; return r }()},
		"AreBoundedPerNode":  {takeover.Config{WaitersPerNode: 2}, takeover.Request{}},
	} {
		rule(t, name, func(t *testing.T, f *fleet) {
			m := f.start(c.config, "a")[0]
			h, first := begin(m, ask("k"))
			waiting := []<-chan answered{do(m, ask("k"), refuse(t)), do(m, ask("k"), refuse(t))}
			f.await("two wait", func() bool { return m.Waiting() == 2 })
			since := time.Now()
			(<-do(m, ask("k"), refuse(t))).check(t, takeover.InProgress, "")
			if waited := time.Since(since); waited != 0 {
				t.Errorf("one too many waited %s", waited)
			}
			if c.another.Operation != "" {
				other, got := begin(m, c.another)
				dup := do(m, c.another, refuse(t))
				f.await("another waits", func() bool { return m.Waiting() == 3 })
				close(other.finish)
				(<-got).check(t, takeover.Executed, "held")
				(<-dup).check(t, takeover.Waited, "held")
			}
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
			for _, w := range waiting {
				(<-w).check(t, takeover.Waited, "held")
			}
			if m.Waiting() != 0 {
				t.Errorf("%d are still counted", m.Waiting())
			}
		})
	}
}

// coordinatorCases are those about callers and their claims.
func coordinatorCases(t *testing.T) {
	rule(t, "K05_OwnerFinalizesBetweenAWaitersReadAndItsQuestion", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		before := func() {
			nodes[1].calls.beforeProbe.Store(nil)
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
		}
		nodes[1].calls.beforeProbe.Store(&before)
		(<-do(nodes[1], ask("k"), refuse(t))).check(t, takeover.Waited, "held")
	})

	rule(t, "K05_OwnerFinalizesBetweenAWaitersReadAndItsClaim", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h := newHeld()
		first := do(nodes[0], ask("k"), h.stubborn)
		<-h.begun
		if _, err := nodes[1].gate.Store.FenceByOperator(t.Context(), records.Condemnation{Executor: nodes[0].Identity().Executor, Actor: "test", Reason: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		claim := make(chan struct{})
		nodes[1].gate.Once(recordstest.TakeOver, recordstest.Fault{Pause: claim})
		second := do(nodes[1], ask("k"), refuse(t))
		f.await("it claims", func() bool { return nodes[1].gate.Calls(recordstest.TakeOver) == 1 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		close(claim)
		(<-second).check(t, takeover.Waited, "held")
		if n := len(f.of(tookOver)); n != 0 {
			t.Errorf("%d take-overs", n)
		}
	})

	rule(t, "K10_ClientClosesTheSocketEarlyAndRetries", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		h := newHeld()
		(<-doWith(ctx, nodes[0], ask("k"), h.work)).fails(t, context.DeadlineExceeded)
		retries := []<-chan answered{do(nodes[0], ask("k"), refuse(t)), do(nodes[1], ask("k"), refuse(t))}
		f.await("both retries wait", func() bool { return nodes[0].Waiting() == 1 && nodes[1].Waiting() == 1 })
		close(h.finish)
		for _, r := range retries {
			(<-r).check(t, takeover.Waited, "held")
		}
		ran(t, &h.runs, 1)
	})

	rule(t, "K24_AnotherPayloadWhileTheFirstRuns", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		h, first := begin(nodes[0], ask("k"))
		other := ask("k")
		other.Fingerprint = records.FingerprintOf("something else")
		for _, m := range nodes {
			since := time.Now()
			(<-do(m, other, refuse(t))).check(t, takeover.Reused, "")
			if waited := time.Since(since); waited != 0 {
				t.Errorf("waited %s to be refused", waited)
			}
		}
		if _, running := nodes[0].Entry(ask("k").Key.ID()); !running {
			t.Error("the refused request has made the owner look idle")
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "K34_OneKeyTenTimesRoundRobin", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var runs atomic.Int64
		for i := range 10 {
			got := <-do(nodes[i%2], ask("k"), instant(&runs, "one"))
			got.check(t, map[bool]takeover.OutcomeKind{true: takeover.Executed, false: takeover.Replayed}[i == 0], "one")
		}
		ran(t, &runs, 1)
	})

	rule(t, "K39_FiftyFirstRequestsAtOnce", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var runs atomic.Int64
		var all []<-chan answered
		for i := range 50 {
			all = append(all, do(nodes[i%2], ask("k"), instant(&runs, "one")))
		}
		executed := 0
		for _, got := range all {
			a := <-got
			if a.Outcome == takeover.Executed {
				executed++
			} else if a.Outcome != takeover.Replayed {
				a.check(t, takeover.Waited, "one")
			}
		}
		if executed != 1 {
			t.Errorf("%d were told that they executed", executed)
		}
		ran(t, &runs, 1)
	})
}
