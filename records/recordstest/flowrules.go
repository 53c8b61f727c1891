package recordstest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

var wantFlowRules = []flowRule{
	{"IsSeenByWhoHoldsTheFlow", func(f flowFixture) {
		flow, r := f.runs("f")
		f.check(f.flows.HoldsFlow(f.Context(), "f", r.Fence()))
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowSuspended, Reason: "lunch"})
		f.check(err)
		f.refused(f.flows.HoldsFlow(f.Context(), "f", r.Fence()), records.ErrFenced)
		noted, err := f.flows.NoteProgress(f.Context(), []records.FlowNote{{ID: "f", Fence: r.Fence()}})
		f.check(err)
		f.equal("noted", noted, []records.FlowNoted{{Wanted: records.FlowSuspended}})
		m := held(flow, r, records.FlowStarted)
		m.Begin = true
		f.equal("a successor sees it", f.moves(m).Wanted, records.FlowSuspended)
		f.equal("and it is gone when done", f.moves(held(flow, r, records.FlowSuspended)).Wanted, records.FlowState(""))
	}},
	{"KnowsWhoAskedUntilItIsDone", func(f flowFixture) {
		flow, r := f.runs("f")
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowSuspended, Reason: "lunch"})
		f.check(err)
		got, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: "enough"})
		f.check(err)
		f.equal("wanted", got.Wanted, records.FlowTerminated)
		f.equal("by", got.WantedBy, records.FlowOperator)
		m := held(flow, r, records.FlowStarted)
		m.Begin = true
		f.equal("a successor sees it", f.moves(m).WantedBy, records.FlowOperator)
		f.equal("and it is gone when done", f.moves(held(flow, r, records.FlowTerminated)).WantedBy, records.FlowControlPlane)
	}},
	{"ToEndIsNotTakenBack", func(f flowFixture) {
		f.runs("f")
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: "enough"})
		f.check(err)
		again, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowTerminated, Reason: "no more"})
		f.check(err)
		f.equal("by who asked first", again.WantedBy, records.FlowOperator)
		got, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowSuspended, Reason: "lunch"})
		f.check(err)
		f.equal("wanted", got.Wanted, records.FlowTerminated)
		f.equal("reason", got.Reason, "enough")
	}},
	{"AgainTouchesNothing", func(f flowFixture) {
		f.runs("f")
		for _, w := range []records.FlowWish{{State: records.FlowSuspended}, {State: records.FlowTerminated, By: records.FlowOperator}} {
			first, err := f.flows.WantFlow(f.Context(), "f", w)
			f.check(err)
			again, err := f.flows.WantFlow(f.Context(), "f", w)
			f.check(err)
			f.equal("flow", again, first)
		}
	}},
	{"ToEndIsNotTakenBackByAMove", func(f flowFixture) {
		flow, r := f.runs("f")
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: "enough"})
		f.check(err)
		f.stands(held(flow, r, records.FlowSuspended))
		f.check(f.store.Release(f.Context(), r.ID, r.Fence()))
		f.stands(idle(flow, records.FlowSuspended))
		f.equal("and it ends", f.moves(idle(flow, records.FlowTerminated)).State, records.FlowTerminated)
	}},
	{"IsRefusedOfWhatDoesNotRun", func(f flowFixture) {
		flow, r := f.runs("f")
		f.moves(held(flow, r, records.FlowSuspended))
		for _, id := range []string{"f", "nobody"} {
			_, err := f.flows.WantFlow(f.Context(), id, records.FlowWish{State: records.FlowTerminated, Reason: ""})
			f.refused(err, records.ErrFenced)
		}
	}},
}

var noteRules = []flowRule{
	{"WritesManyEachUnderItsFence", func(f flowFixture) {
		_, one := f.runs("one")
		_, two := f.runs("two")
		f.fence(two.Executor)
		f.takesOver(takeOver(two, one.Executor), two)
		noted, err := f.flows.NoteProgress(f.Context(), []records.FlowNote{
			{ID: "two", Fence: two.Fence(), Progress: records.Progress{Bytes: 5}},
			{ID: "one", Fence: one.Fence(), Progress: records.Progress{Bytes: 5, Total: 9, Checkpoint: []byte("c")}},
			{ID: "nobody", Fence: one.Fence()},
		})
		f.check(err)
		f.equal("noted", noted, []records.FlowNoted{{Fenced: true}, {}, {Fenced: true}})
		f.equal("one", f.flow("one").Flow.Progress, records.Progress{Bytes: 5, Total: 9, Checkpoint: []byte("c")})
		f.equal("two", f.flow("two").Flow.Progress, records.Progress{})
	}},
	{"LeavesAloneWhatHasEnded", func(f flowFixture) {
		flow, r := f.runs("f")
		f.moves(held(flow, r, records.FlowTerminated))
		noted, err := f.flows.NoteProgress(f.Context(), []records.FlowNote{{ID: "f", Fence: r.Fence(), Progress: records.Progress{Bytes: 5}}})
		f.check(err)
		f.equal("noted", noted, []records.FlowNoted{{Fenced: true}})
	}},
	{"OfNothingWritesNothing", func(f flowFixture) {
		noted, err := f.flows.NoteProgress(f.Context(), nil)
		f.check(err)
		f.equal("noted", len(noted), 0)
	}},
}

var strayRules = []flowRule{
	{"AreThoseThatNoLiveExecutorHas", func(f flowFixture) {
		f.runs("running")
		_, dead := f.runs("of the dead")
		f.fence(dead.Executor)
		_, silent := f.runsUnder("of the silent", records.Registration{LeaseTTL: 20 * time.Millisecond})
		_, free := f.runs("released")
		f.check(f.store.Release(f.Context(), free.ID, free.Fence()))
		f.makes(newFlow("never begun", reservation(records.ExecutorID{1})))
		done, r := f.runs("done")
		f.moves(held(done, r, records.FlowCompleted))
		f.finalize(r, outcome("done", long))
		pull := newFlow("pull", reservation(records.ExecutorID{1}))
		pull.Moves = false
		f.makes(pull)
		f.elapse(20 * time.Millisecond)
		f.equal("the silent one beats no more", f.executor(silent.Executor).Stale(), true)
		strays, err := f.flows.StrayFlows(f.Context(), 0, "", 10)
		f.check(err)
		var ids []string
		for _, s := range strays {
			ids = append(ids, s.ID)
		}
		f.equal("strays", ids, []string{"never begun", "of the dead", "of the silent", "released"})
		rest, err := f.flows.StrayFlows(f.Context(), 0, "of the dead", 1)
		f.check(err)
		f.equal("a page", len(rest), 1)
		f.equal("goes on", rest[0].ID, "of the silent")
	}},
	{"AreThoseThatArePrepared", func(f flowFixture) {
		for _, state := range []records.FlowState{records.FlowPreparing, records.FlowPrepared} {
			n := newFlow(string(state), reservation(records.ExecutorID{1}))
			n.State, n.Moves = state, false
			f.makes(n)
		}
		f.elapse(time.Millisecond)
		strays, err := f.flows.StrayFlows(f.Context(), 0, "", 10)
		f.check(err)
		f.equal("strays", len(strays), 1)
		f.equal("stray", strays[0].ID, string(records.FlowPreparing))
		f.equal("prepared", f.moves(idle(strays[0], records.FlowPrepared)).State, records.FlowPrepared)
	}},
	{"AreNotThoseJustTouched", func(f flowFixture) {
		f.makes(newFlow("fresh", reservation(records.ExecutorID{1})))
		strays, err := f.flows.StrayFlows(f.Context(), time.Hour, "", 10)
		f.check(err)
		f.equal("strays", len(strays), 0)
	}},
}

// runsUnder is runs with an executor as wished.
func (f flowFixture) runsUnder(id string, registration records.Registration) (records.Flow, records.Record) {
	f.Helper()
	e := f.active(registration)
	r := reservation(e.ID)
	return f.makes(newFlow(id, r)), f.reserve(r)
}

var listFlowRules = []flowRule{
	{"GoesPageByPageInOrder", func(f flowFixture) {
		for i := range 5 {
			n := newFlow(fmt.Sprintf("f%d", i), reservation(records.ExecutorID{1}))
			if i%2 == 1 {
				n.State = records.FlowPrepared
			}
			f.makes(n)
		}
		var ids []string
		for after, more := "", true; more; {
			page, err := f.flows.ListFlows(f.Context(), records.FlowFilter{After: after, Limit: 2})
			f.check(err)
			for _, flow := range page.Flows {
				ids = append(ids, flow.ID)
				f.equal("message", len(flow.Message), 0)
			}
			after, more = page.Next, page.More
		}
		f.equal("ids", ids, []string{"f0", "f1", "f2", "f3", "f4"})
		page, err := f.flows.ListFlows(f.Context(), records.FlowFilter{State: records.FlowPrepared, Limit: 10})
		f.check(err)
		f.equal("prepared", len(page.Flows), 2)
	}},
}

var purgeFlowRules = []flowRule{
	{"ForgetsWhatEndedAndWasTold", func(f flowFixture) {
		for _, id := range []string{"told", "untold", "running"} {
			flow, r := f.runs(id)
			if id == "running" {
				continue
			}
			m := held(flow, r, records.FlowCompleted)
			if id == "untold" {
				m.Callback = tells("completed")
			}
			f.moves(m)
		}
		n, err := f.flows.PurgeFlows(f.Context(), time.Hour, 10)
		f.check(err)
		f.equal("too young", n, 0)
		f.elapse(time.Millisecond)
		n, err = f.flows.PurgeFlows(f.Context(), 0, 10)
		f.check(err)
		f.equal("purged", n, 1)
		_, err = f.flows.LoadFlow(f.Context(), "told")
		f.refused(err, records.ErrNotFound)
	}},
}

var callbackRules = []flowRule{
	{"AreTakenOneByOneInOrder", func(f flowFixture) {
		n := newFlow("f", reservation(records.ExecutorID{1}))
		n.State, n.Callback = records.FlowPrepared, tells("prepared")
		flow := f.makes(n)
		m := idle(flow, records.FlowStarted)
		m.Callback = tells("started")
		f.moves(m)
		due := f.due()
		f.equal("first", due[0].Event, "prepared")
		f.equal("tries", due[0].Tries, 1)
		f.equal("alone", len(due), 1)
		f.equal("and only once", len(f.due()), 0)
		f.check(f.flows.CallbackFailed(f.Context(), "f", due[0].Version, 0, "status 503"))
		again := f.due()
		f.equal("again", again[0].NewCallback, due[0].NewCallback)
		f.equal("tries", again[0].Tries, 2)
		f.equal("reason", again[0].Reason, "status 503")
		f.check(f.flows.CallbackDone(f.Context(), "f", due[0].Version))
		f.check(f.flows.CallbackDone(f.Context(), "f", due[0].Version)) // a repeat does nothing
		f.equal("then the next", f.due()[0].Event, "started")
	}},
	{"ComeBackWhenWhoTookThemDied", func(f flowFixture) {
		n := newFlow("f", reservation(records.ExecutorID{1}))
		n.Callback = tells("started")
		f.makes(n)
		due, err := f.flows.DueCallbacks(f.Context(), time.Millisecond, 10)
		f.check(err)
		f.equal("taken", len(due), 1)
		f.elapse(time.Millisecond)
		f.equal("due again", len(f.due()), 1)
	}},
	{"AreCountedUntilTheyAreDoneUpToTheMost", func(f flowFixture) {
		for _, id := range []string{"e", "f", "g"} {
			n := newFlow(id, reservation(records.ExecutorID{1}))
			n.Callback = tells("started")
			f.makes(n)
		}
		waiting := func(most, want int) {
			f.Helper()
			n, err := f.flows.WaitingCallbacks(f.Context(), most)
			f.check(err)
			f.equal("waiting", n, want)
		}
		waiting(10, 3)
		waiting(2, 2)
		due := f.due()
		waiting(10, 3) // who has taken one has not delivered it yet
		f.check(f.flows.CallbackDone(f.Context(), due[0].Flow, due[0].Version))
		waiting(10, 2)
	}},
}

func (f flowFixture) due() []records.Callback {
	f.Helper()
	due, err := f.flows.DueCallbacks(f.Context(), time.Hour, 10)
	f.check(err)
	return due
}

var flowRaceRules = []flowRule{
	{"ManyCreateOne", func(f flowFixture) {
		var made atomic.Int32
		var all sync.WaitGroup
		for _, s := range f.nodes(4) {
			all.Go(func() {
				n := newFlow("f", reservation(records.ExecutorID{1}))
				if _, fresh, err := s.(records.Flows).CreateFlow(f.Context(), n); err != nil {
					f.Error(err)
				} else if fresh {
					made.Add(1)
				}
			})
		}
		all.Wait()
		f.equal("made", made.Load(), int32(1))
	}},
	{"AnOvertakenOwnerNeverEndsAFlow", func(f flowFixture) {
		// The owner's last move races the take-over. Either it came first, or it
		// is refused: the flow's epoch is never older than its state.
		for i := range 8 {
			flow, r := f.runs(fmt.Sprintf("f%d", i))
			f.fence(r.Executor)
			successor := f.active(records.Registration{})
			var won records.Record
			var ended, taken error
			var both sync.WaitGroup
			both.Go(func() { _, ended = f.flows.MoveFlow(f.Context(), held(flow, r, records.FlowCompleted)) })
			both.Go(func() { won, taken = f.store.TakeOver(f.Context(), takeOver(r, successor.ID)) })
			both.Wait()
			f.check(taken)
			m := held(flow, won, records.FlowStarted)
			m.Begin = true
			if _, err := f.flows.MoveFlow(f.Context(), m); (err == nil) == (ended == nil) {
				f.Errorf("the owner's end: %v; the successor's beginning: %v", ended, err)
			}
		}
	}},
	{"ACallbackIsTakenByOne", func(f flowFixture) {
		for i := range 10 {
			n := newFlow(fmt.Sprintf("f%d", i), reservation(records.ExecutorID{1}))
			n.Callback = tells("started")
			f.makes(n)
		}
		var taken atomic.Int32
		var all sync.WaitGroup
		for _, s := range f.nodes(4) {
			all.Go(func() {
				for range 3 {
					due, err := s.(records.Flows).DueCallbacks(f.Context(), time.Hour, 4)
					if err != nil {
						f.Error(err)
					}
					taken.Add(int32(len(due))) //nolint:gosec // at most four
				}
			})
		}
		all.Wait()
		f.equal("taken", taken.Load(), int32(10))
	}},
}
