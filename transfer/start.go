package transfer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// startPatience is how long a start waits for a flow that another node has and
// does not vouch for: as long as it takes to find out that it died.
const startPatience = 10 * time.Second

// newFlow is a flow as a message asks for it.
func (p *Plane) newFlow(m Message, moves bool, state records.FlowState) records.NewFlow {
	return records.NewFlow{
		ID: m.ProcessID, Record: keyOf(m.ProcessID).ID(), Fingerprint: m.fingerprint(false), Moves: moves, State: state,
		Attempt: records.NewToken(), Profile: m.Profile, Dataset: m.DatasetID, ReplyTo: m.CallbackAddress,
	}
}

// create adds a flow with its task.
func (p *Plane) create(ctx context.Context, f records.NewFlow, t Task) (records.Flow, bool, error) {
	var err error
	if f.Message, err = t.bytes(); err != nil {
		return records.Flow{}, false, err
	}
	return p.store.CreateFlow(ctx, f)
}

// running is the state in which a flow begins to run.
func (p *Plane) runningState() records.FlowState {
	if p.config.Async {
		return records.FlowStarting
	}
	return records.FlowStarted
}

// start makes a flow, or begins one that was prepared; and repeated finds it.
func (p *Plane) start(r *http.Request) (*answer, error) {
	m, err := p.readMessage(r)
	if err != nil {
		return nil, err
	}
	t := Task{Start: &m}
	if m.direction() == Pull && m.DataAddress != nil {
		return nil, &invalid{[]error{errors.New("dataAddress: a pull has none; this data plane makes it")}}
	}
	if held, err := p.store.LoadFlow(r.Context(), m.ProcessID); err == nil {
		return p.startAgain(r.Context(), held.Flow, m)
	} else if !errors.Is(err, records.ErrNotFound) {
		return nil, err
	}
	if err := p.possible(t); err != nil {
		return nil, &invalid{[]error{err}}
	}
	if !m.tracked() {
		return p.startUntracked(r, t)
	}
	if m.direction() == Pull {
		return p.startPull(r.Context(), m, t)
	}
	return p.startPush(r.Context(), m, t)
}

// possible reports why a task can never be done.
func (p *Plane) possible(t Task) error {
	_, err := p.config.Ends.Source(t)
	if t.message().direction() == Push {
		_, sink := p.config.Ends.Sink(t)
		err = errors.Join(err, sink)
	}
	return err
}

func (p *Plane) startPush(ctx context.Context, m Message, t Task) (*answer, error) {
	leave, err := p.admit()
	if err != nil {
		return nil, err
	}
	defer leave()
	if p.config.Ends.Bound(t) {
		t.Slot = p.config.Slot
	}
	f := p.newFlow(m, true, p.runningState())
	stored, fresh, err := p.create(ctx, f, t)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return p.startAgain(ctx, stored, m)
	}
	return p.launch(ctx, stored.ID, false)
}

// admit refuses what this node has no place for, in line included. Until who
// was let in leaves, it counts, so that of many that come at once no more are
// let in than there are places.
func (p *Plane) admit() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.leaving:
		return nil, busy(http.StatusServiceUnavailable, "not_serving", "this node is leaving; ask another", time.Second)
	case len(p.runs)+p.admitted >= p.config.Flows+p.config.Queue:
		return nil, busy(http.StatusTooManyRequests, "too_many_flows", "this node moves, and keeps waiting, as many data flows as it may", 5*time.Second)
	}
	p.admitted++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.admitted--
	}), nil
}

// launch has a flow that runs moved, and says how it stands.
func (p *Plane) launch(ctx context.Context, id string, replayed bool) (*answer, error) {
	held, err := p.ensure(ctx, id, startPatience)
	if err != nil {
		return nil, err
	}
	a := &answer{status: http.StatusOK, flow: held.Flow, replayed: replayed}
	if held.Flow.State == records.FlowStarting || p.config.Async && !replayed {
		// However quick it was: the callbacks tell the rest.
		a.status, a.flow.State, a.flow.Reason = http.StatusAccepted, records.FlowStarting, ""
	}
	return a, nil
}

// startAgain answers the start of a flow that exists: by what it is, never by
// running it a second time.
func (p *Plane) startAgain(ctx context.Context, f records.Flow, m Message) (*answer, error) {
	known, err := taskOf(f.Message)
	if err != nil {
		return nil, err
	}
	switch {
	case !known.sameStart(&m):
		return nil, refused(http.StatusConflict, "flow_exists", "there is a data flow of this processId, for something else; it is unchanged")
	case known.Start == nil:
		return p.startPrepared(ctx, f, known, m)
	case p.config.RejectDuplicates && known.Start.MessageID != m.MessageID:
		return nil, refused(http.StatusConflict, "flow_exists", "the data flow exists, and this data plane is told to refuse a repeated start")
	case !f.Moves && f.State == records.FlowStarted && m.direction() == Pull:
		a := &answer{status: http.StatusOK, replayed: true}
		a.flow, a.address, err = p.reissue(ctx, f.ID)
		return a, err
	}
	return p.launch(ctx, f.ID, true)
}

// startPrepared begins a flow that was prepared.
func (p *Plane) startPrepared(ctx context.Context, f records.Flow, known Task, m Message) (*answer, error) {
	if f.State != records.FlowPrepared {
		return nil, refused(http.StatusConflict, "wrong_state", "a data flow that is "+string(f.State)+" cannot be started")
	}
	known.Start = &m
	if err := p.possible(known); err != nil {
		return nil, &invalid{[]error{err}}
	}
	move := records.FlowMove{ID: f.ID, Attempt: records.NewToken(), Version: f.Version, To: records.FlowStarted, ReplyTo: m.CallbackAddress}
	a := &answer{status: http.StatusOK}
	var err error
	if m.direction() == Pull {
		if a.address, move.Tokens, err = p.issue(f.ID, m.Profile, nil); err != nil {
			return nil, err
		}
	} else {
		leave, err := p.admit()
		if err != nil {
			return nil, err
		}
		defer leave()
		move.To, move.Moves, move.Tokens = p.runningState(), true, []byte{}
		if p.config.Ends.Bound(known) {
			known.Slot = p.config.Slot
		}
	}
	if move.Message, err = known.bytes(); err != nil {
		return nil, err
	}
	a.flow, err = p.store.MoveFlow(ctx, move)
	if errors.Is(err, records.ErrFenced) { // another start was faster, which makes this one a repeat
		held, again := p.store.LoadFlow(ctx, f.ID)
		if again == nil && held.Flow.Version > f.Version {
			return p.startAgain(ctx, held.Flow, m)
		}
	}
	if err != nil {
		return nil, err
	}
	if move.Moves {
		return p.launch(ctx, f.ID, false)
	}
	return a, nil
}
