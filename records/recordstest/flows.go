package recordstest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// FlowStore is a store that keeps data flows, too.
type FlowStore interface {
	records.Store
	records.Flows
}

// flowFixture is what a rule about flows works with.
type flowFixture struct {
	*fixture
	flows records.Flows
}

// flowRule is one sentence of the contract of data flows.
type flowRule struct {
	name  string
	check func(f flowFixture)
}

// RunFlows runs the suite about data flows over databases made by fresh.
func RunFlows(t *testing.T, fresh func(t testing.TB) (open func(t testing.TB) FlowStore)) {
	for _, g := range []struct {
		name  string
		rules []flowRule
	}{
		{"CreateFlow", createFlowRules},
		{"MoveFlow", moveFlowRules},
		{"RefusedMove", refusedMoveRules},
		{"WantFlow", wantFlowRules},
		{"NoteProgress", noteRules},
		{"StrayFlows", strayRules},
		{"ListFlows", listFlowRules},
		{"PurgeFlows", purgeFlowRules},
		{"Callbacks", callbackRules},
		{"FlowRace", flowRaceRules},
	} {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel()
					open := fresh(t)
					s := open(t)
					r.check(flowFixture{&fixture{TB: t, store: s, open: func(t testing.TB) records.Store { return open(t) }}, s})
				})
			}
		})
	}
}

// newFlow asks for a flow whose record is that of a reservation.
func newFlow(id string, r records.Reservation) records.NewFlow {
	return records.NewFlow{
		ID: id, Record: r.ID, Fingerprint: r.Fingerprint, Moves: true, State: records.FlowStarted, Attempt: records.NewToken(),
		Profile: "http-push", Dataset: "asset", Message: []byte(`{"what":1}`), ReplyTo: "http://control.example",
	}
}

// makes adds a flow.
func (f flowFixture) makes(n records.NewFlow) records.Flow {
	f.Helper()
	flow, fresh, err := f.flows.CreateFlow(f.Context(), n)
	f.check(err)
	f.equal("fresh", fresh, true)
	return flow
}

// runs makes a flow and has an executor take its record in progress.
func (f flowFixture) runs(id string) (records.Flow, records.Record) {
	f.Helper()
	e := f.active(records.Registration{})
	r := reservation(e.ID)
	flow := f.makes(newFlow(id, r))
	return flow, f.reserve(r)
}

func (f flowFixture) flow(id string) records.HeldFlow {
	f.Helper()
	held, err := f.flows.LoadFlow(f.Context(), id)
	f.check(err)
	return held
}

// moves demands that a move lands.
func (f flowFixture) moves(m records.FlowMove) records.Flow {
	f.Helper()
	flow, err := f.flows.MoveFlow(f.Context(), m)
	f.check(err)
	return flow
}

// stands demands that a move is refused and changes nothing.
func (f flowFixture) stands(m records.FlowMove) {
	f.Helper()
	before := f.flow(m.ID)
	_, err := f.flows.MoveFlow(f.Context(), m)
	f.refused(err, records.ErrFenced)
	f.equal("flow", f.flow(m.ID), before)
}

func held(flow records.Flow, r records.Record, to records.FlowState) records.FlowMove {
	return records.FlowMove{ID: flow.ID, Attempt: records.NewToken(), Fence: r.Fence(), To: to}
}

func idle(flow records.Flow, to records.FlowState) records.FlowMove {
	return records.FlowMove{ID: flow.ID, Attempt: records.NewToken(), Version: flow.Version, To: to}
}

func tells(event string) *records.NewCallback {
	return &records.NewCallback{Event: event, URL: "http://control.example/" + event, Body: []byte(`{"event":"` + event + `"}`)}
}

var createFlowRules = []flowRule{
	{"KeepsWhatIsGiven", func(f flowFixture) {
		n := newFlow("urn:uuid:ä/1", reservation(records.ExecutorID{1}))
		n.Tokens, n.Callback = bytes.Repeat([]byte{7}, 64), tells("started")
		got := f.makes(n)
		f.equal("created at", got.CreatedAt.IsZero(), false)
		want := records.Flow{
			ID: n.ID, Record: n.Record, Fingerprint: n.Fingerprint, Moves: true, State: n.State, Version: 1, Attempt: n.Attempt,
			Profile: n.Profile, Dataset: n.Dataset, Message: n.Message, ReplyTo: n.ReplyTo, Tokens: n.Tokens,
			CreatedAt: got.CreatedAt, UpdatedAt: got.CreatedAt,
		}
		f.equal("created", got, want)
		h := f.flow(n.ID)
		f.equal("loaded", h.Flow, want)
		f.equal("callback", h.Callback.NewCallback, *n.Callback)
		f.equal("in progress", h.InProgress(), false)
	}},
	{"ReturnsWhatStandsThere", func(f flowFixture) {
		n := newFlow("one", reservation(records.ExecutorID{1}))
		first := f.makes(n)
		again, fresh, err := f.flows.CreateFlow(f.Context(), n)
		f.check(err)
		f.equal("a repeat is told the same", again, first)
		f.equal("and that it is its own", fresh, true)
		other := n
		other.Attempt, other.Message, other.Callback = records.NewToken(), []byte("other"), tells("started")
		got, fresh, err := f.flows.CreateFlow(f.Context(), other)
		f.check(err)
		f.equal("another's is unchanged", got, first)
		f.equal("fresh", fresh, false)
		if f.flow("one").Callback != nil {
			f.Error("what was not created is told of")
		}
	}},
	{"RefusesWhatCanNeverBeStored", func(f flowFixture) {
		good := newFlow("id", reservation(records.ExecutorID{1}))
		for name, spoil := range map[string]func(*records.NewFlow){
			"no id": func(n *records.NewFlow) { n.ID = "" }, "a control character": func(n *records.NewFlow) { n.ID = "a\x00" },
			"no attempt": func(n *records.NewFlow) { n.Attempt = records.Token{} }, "an end": func(n *records.NewFlow) { n.State = records.FlowCompleted },
			"half a token": func(n *records.NewFlow) { n.Tokens = []byte{1} },
		} {
			bad := good
			spoil(&bad)
			if _, _, err := f.flows.CreateFlow(f.Context(), bad); err == nil {
				f.Errorf("%s is accepted", name)
			} else {
				f.refused(err, records.ErrInvalid)
			}
		}
	}},
	{"LoadsNothingThatIsNotThere", func(f flowFixture) {
		for _, id := range []string{"nobody", "", "a\x00"} {
			_, err := f.flows.LoadFlow(f.Context(), id)
			f.refused(err, records.ErrNotFound)
		}
	}},
}

var moveFlowRules = []flowRule{
	{"BeginsUnderTheFenceOfItsRecord", func(f flowFixture) {
		flow, r := f.runs("f")
		m := held(flow, r, records.FlowStarted)
		m.Begin = true
		got := f.moves(m)
		f.equal("attempts", got.Attempts, 1)
		f.equal("executor", got.Executor, r.Executor)
		f.equal("epoch", got.Epoch, r.Epoch)
		f.equal("version", got.Version, flow.Version+1)
		h := f.flow("f")
		f.equal("fence", h.Fence, r.Fence())
		f.equal("in progress", h.InProgress(), true)
		f.equal("url", h.URL, r.ExecutorURL)
	}},
	{"EndsWithItsCallbackAndItsProgress", func(f flowFixture) {
		flow, r := f.runs("f")
		m := held(flow, r, records.FlowCompleted)
		m.Progress = &records.Progress{Bytes: 7, Total: 7, SHA256: bytes.Repeat([]byte{9}, 32)}
		m.Callback, m.Tokens = tells("completed"), []byte{}
		got := f.moves(m)
		f.equal("state", got.State, records.FlowCompleted)
		f.equal("progress", got.Progress, *m.Progress)
		f.equal("ended", got.EndedAt.IsZero(), false)
		f.equal("callback", f.flow("f").Callback.Version, got.Version)
	}},
	{"RepeatedSaysTheSameAgain", func(f flowFixture) {
		flow, r := f.runs("f")
		m := held(flow, r, records.FlowTerminated)
		m.Reason, m.Callback = "broken", tells("errored")
		first := f.moves(m)
		f.equal("again", f.moves(m), first)
		f.equal("reason", first.Reason, "broken")
		due, err := f.flows.DueCallbacks(f.Context(), time.Hour, 10)
		f.check(err)
		f.equal("callbacks", len(due), 1)
	}},
	{"MovesByItsVersionWhileNobodyHasTheRecord", func(f flowFixture) {
		n := newFlow("f", reservation(records.ExecutorID{1}))
		n.State, n.Moves = records.FlowPrepared, false
		flow := f.makes(n)
		m := idle(flow, records.FlowStarted)
		m.Message, m.ReplyTo, m.Moves = []byte("start"), "http://other.example", true
		got := f.moves(m)
		f.equal("moves", got.Moves, true)
		f.equal("message", got.Message, m.Message)
		f.equal("reply to", got.ReplyTo, m.ReplyTo)
		f.equal("progress kept", got.Progress, flow.Progress)
	}},
	{"KeepsItsCheckpointWhenItIsSuspended", func(f flowFixture) {
		flow, r := f.runs("f")
		m := held(flow, r, records.FlowSuspended)
		m.Progress = &records.Progress{Bytes: 3, Total: 9, Checkpoint: []byte("here")}
		suspended := f.moves(m)
		f.check(f.store.Release(f.Context(), r.ID, r.Fence()))
		f.equal("progress", f.moves(idle(suspended, records.FlowStarted)).Progress, *m.Progress)
	}},
}

var refusedMoveRules = []flowRule{
	{"OfAnOvertakenOwner", func(f flowFixture) {
		flow, r := f.runs("f")
		f.fence(r.Executor)
		successor := f.active(records.Registration{})
		f.takesOver(takeOver(r, successor.ID), r)
		for _, to := range []records.FlowState{records.FlowStarted, records.FlowCompleted, records.FlowTerminated, records.FlowSuspended} {
			f.stands(held(flow, r, to))
		}
		f.refused(f.flows.HoldsFlow(f.Context(), "f", r.Fence()), records.ErrFenced)
	}},
	{"FromWhatIsFinal", func(f flowFixture) {
		flow, r := f.runs("f")
		done := f.moves(held(flow, r, records.FlowCompleted))
		f.stands(held(done, r, records.FlowTerminated))
		f.stands(held(done, r, records.FlowStarted))
		f.finalize(r, outcome("done", long))
		f.stands(idle(done, records.FlowTerminated))
	}},
	{"WithoutAFenceWhileSomebodyHasTheRecord", func(f flowFixture) {
		flow, _ := f.runs("f")
		f.stands(idle(flow, records.FlowTerminated))
	}},
	{"AtAnOldVersion", func(f flowFixture) {
		n := newFlow("f", reservation(records.ExecutorID{1}))
		n.State = records.FlowPrepared
		flow := f.makes(n)
		f.moves(idle(flow, records.FlowStarted))
		f.stands(idle(flow, records.FlowTerminated))
	}},
	{"BeginningWhatDoesNotRun", func(f flowFixture) {
		e := f.active(records.Registration{})
		r := reservation(e.ID)
		n := newFlow("f", r)
		n.State = records.FlowPrepared
		flow, record := f.makes(n), f.reserve(r)
		m := held(flow, record, records.FlowStarted)
		m.Begin = true
		f.stands(m)
	}},
	{"OfNoFlow", func(f flowFixture) {
		_, err := f.flows.MoveFlow(f.Context(), idle(records.Flow{ID: "nobody"}, records.FlowStarted))
		f.refused(err, records.ErrFenced)
	}},
}

var wantFlowRules = []flowRule{
	{"IsSeenByWhoHoldsTheFlow", func(f flowFixture) {
		flow, r := f.runs("f")
		f.check(f.flows.HoldsFlow(f.Context(), "f", r.Fence()))
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowSuspended, "lunch")
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
	{"ToEndIsNotTakenBack", func(f flowFixture) {
		f.runs("f")
		_, err := f.flows.WantFlow(f.Context(), "f", records.FlowTerminated, "enough")
		f.check(err)
		got, err := f.flows.WantFlow(f.Context(), "f", records.FlowSuspended, "lunch")
		f.check(err)
		f.equal("wanted", got.Wanted, records.FlowTerminated)
		f.equal("reason", got.Reason, "enough")
	}},
	{"IsRefusedOfWhatDoesNotRun", func(f flowFixture) {
		flow, r := f.runs("f")
		f.moves(held(flow, r, records.FlowSuspended))
		for _, id := range []string{"f", "nobody"} {
			_, err := f.flows.WantFlow(f.Context(), id, records.FlowTerminated, "")
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
