package recordstest

import (
	"bytes"
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
	{"BeginsOnceHoweverOftenThatIsSaid", func(f flowFixture) {
		flow, r := f.runs("f")
		m := held(flow, r, records.FlowStarted)
		m.Begin, m.Callback = true, tells("started")
		first := f.moves(m)
		f.equal("again", f.moves(m), first)
		f.equal("callback", f.flow("f").Callback.Version, first.Version)
		f.check(f.flows.CallbackDone(f.Context(), "f", first.Version))
		f.equal("told twice", f.flow("f").Callback == nil, true)
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
