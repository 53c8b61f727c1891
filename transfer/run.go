package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/transfer/move"
)

// ending is what a flow came to, as its record remembers it too: should the
// flow's row not have been written, it can be written from there.
type ending struct {
	State  records.FlowState `json:"state"`
	Reason string            `json:"reason,omitempty"`
	Bytes  int64             `json:"bytes"`
	SHA256 []byte            `json:"sha256,omitempty"`
	Told   string            `json:"told,omitempty"` // the callback that goes with it
}

// completion of a record whose flow is over.
func (e ending) completion() takeover.Completion {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers are always marshalled
	}
	return takeover.Completion{Kind: takeover.Completed, Response: records.Response{
		Status: 200, Headers: []records.Header{{Name: "Content-Type", Value: "application/json"}}, Body: body,
	}}
}

// endingOf reads it back. The zero ending: there is none.
func endingOf(r *records.Response) ending {
	var e ending
	if r == nil || json.Unmarshal(r.Body, &e) != nil || !e.State.Terminal() {
		return ending{}
	}
	return e
}

// interrupted ends work that somebody is to do again: nothing is seen of it,
// and its key is free.
func interrupted(why string) takeover.Completion {
	return takeover.Completion{Kind: takeover.Untouched, Reason: why}
}

// work moves a flow's bytes under the claim of its record. begun is called when
// this node has the flow, and knows how it stands.
func (p *Plane) work(ctx context.Context, id string, begun func()) takeover.Completion {
	claim, ok := takeover.ClaimFrom(ctx)
	if !ok {
		return interrupted("not under a claim")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{flow: id, fence: claim.Record.Fence(), cancel: cancel}
	if !p.enter(r) {
		begun()
		return interrupted("node is leaving")
	}
	defer p.exit(r)
	flow, err := p.begin(ctx, r)
	// What the executions before this one have left stays known until this one
	// has come further.
	r.bytes.Store(flow.Progress.Bytes)
	r.total.Store(flow.Progress.Total)
	r.checkpoint = flow.Progress.Checkpoint
	r.begun.Store(true)
	begun()
	switch {
	case errors.Is(err, errOver):
		return ending{State: flow.State, Reason: flow.Reason, Bytes: flow.Progress.Bytes, SHA256: flow.Progress.SHA256}.completion()
	case err != nil:
		return interrupted(err.Error())
	case flow.Wanted != "":
		cancel(&wanted{flow.Wanted})
		return p.conclude(ctx, r, flow, move.Result{}, context.Cause(ctx))
	}
	p.log.InfoContext(ctx, "flow begins", "record", flow.Record, "epoch", r.fence.Epoch, "attempts", flow.Attempts, "from", flow.Progress.Bytes)
	result, err := p.moveBytes(ctx, r, flow)
	return p.conclude(ctx, r, flow, result, err)
}

func (p *Plane) enter(r *run) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving {
		return false
	}
	p.runs[r.flow] = r
	return true
}

func (p *Plane) exit(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[r.flow] == r {
		delete(p.runs, r.flow)
	}
}

// running is this process' copy of a flow, or nil.
func (p *Plane) running(id string) *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id]
}

var (
	errOver    = errors.New("flow has ended")
	errNotOurs = errors.New("flow is not to be run now")
	errMayNot  = errors.New("this node may begin no effect now")
)

// begin notes that an execution begins: the flow is this epoch's from here on.
func (p *Plane) begin(ctx context.Context, r *run) (records.Flow, error) {
	attempt := records.NewToken()
	return persist(ctx, func() (records.Flow, error) {
		held, err := p.store.LoadFlow(ctx, r.flow)
		switch {
		case errors.Is(err, records.ErrNotFound):
			return records.Flow{}, errNotOurs
		case err != nil:
			return records.Flow{}, err
		case held.Flow.State.Terminal():
			return held.Flow, errOver
		case !held.Flow.State.Running() || held.Fence != r.fence:
			return held.Flow, errNotOurs
		case held.Flow.Wanted == "" && !p.mayRun(held.Flow): // it was to be ended, and is no longer
			return held.Flow, errNotOurs
		}
		m := records.FlowMove{ID: r.flow, Attempt: attempt, Fence: r.fence, To: records.FlowStarted, Begin: true}
		if held.Flow.State == records.FlowStarting {
			m.Callback = p.callback(held.Flow, eventStarted, records.FlowStarted, "")
		}
		return p.store.MoveFlow(ctx, m)
	})
}

// persist repeats a call while the store cannot be reached.
func persist[T any](ctx context.Context, call func() (T, error)) (T, error) {
	pace := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.RetryWithData(func() (T, error) {
		got, err := call()
		if err != nil && !errors.Is(err, records.ErrUnavailable) {
			return got, backoff.Permanent(err)
		}
		return got, err
	}, backoff.WithContext(pace, ctx))
}

// conclude writes what the copy came to.
func (p *Plane) conclude(ctx context.Context, r *run, flow records.Flow, result move.Result, err error) takeover.Completion {
	e := ending{Bytes: max(result.Bytes, r.bytes.Load())}
	order, ordered := errors.AsType[*wanted](context.Cause(ctx))
	switch {
	case err == nil:
		e.State, e.SHA256, e.Told, e.Bytes = records.FlowCompleted, result.SHA256[:], eventCompleted, result.Bytes
	case ordered:
		said, err := p.wishOf(ctx, flow.ID)
		if err != nil { // whoever finds it next ends it, and knows whom to tell
			return interrupted(fmt.Sprintf("to become %s, for a reason that cannot be read: %v", order.state, err))
		}
		e.State = cmp.Or(said.State, order.state) // to end may have been wanted since
		e.Reason, e.Told = said.Reason, toldOf(said.By, e.State)
	case errors.Is(err, records.ErrFenced), errors.Is(err, move.ErrSuperseded):
		return p.overtaken(ctx, r, flow)
	case ctx.Err() != nil:
		return interrupted(fmt.Sprintf("interrupted: %v", context.Cause(ctx)))
	case errors.Is(err, errMayNot):
		return interrupted(err.Error())
	default:
		e.State, e.Reason, e.Told = records.FlowTerminated, err.Error(), eventErrored
	}
	return p.write(ctx, r, flow, e)
}

// wishOf is what was said with the order.
func (p *Plane) wishOf(ctx context.Context, id string) (records.FlowWish, error) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return persist(limit, func() (records.FlowWish, error) {
		held, err := p.store.LoadFlow(limit, id)
		return records.FlowWish{State: held.Flow.Wanted, By: held.Flow.WantedBy, Reason: held.Flow.Reason}, err
	})
}

// overtaken is a run whose fence no longer held when it was asked for, or of
// which something else is wanted.
func (p *Plane) overtaken(ctx context.Context, r *run, flow records.Flow) takeover.Completion {
	held, err := p.store.LoadFlow(ctx, flow.ID)
	if err == nil && held.Fence == r.fence && held.InProgress() && held.Flow.Wanted != "" {
		return p.write(ctx, r, flow, ending{
			State: held.Flow.Wanted, Reason: held.Flow.Reason, Bytes: r.bytes.Load(), Told: toldOf(held.Flow.WantedBy, held.Flow.Wanted),
		})
	}
	return interrupted("overtaken")
}

// write moves the flow to its ending, under the fence. What cannot be written
// now goes with the record, from which the flow is written later.
func (p *Plane) write(ctx context.Context, r *run, flow records.Flow, e ending) takeover.Completion {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), writePatience)
	defer cancel()
	m := records.FlowMove{
		ID: flow.ID, Attempt: records.NewToken(), Fence: r.fence, To: e.State, Reason: e.Reason,
		Progress: &records.Progress{Bytes: e.Bytes, Total: r.total.Load(), SHA256: e.SHA256, Checkpoint: r.checkpoint},
	}
	if e.State.Terminal() {
		m.Progress.Checkpoint, m.Tokens = nil, []byte{}
	} else if m.Progress.Checkpoint == nil {
		m.Progress.Checkpoint = flow.Progress.Checkpoint
	}
	if e.Told != "" {
		m.Callback = p.callback(flow, e.Told, e.State, e.Reason)
	}
	if e.State == records.FlowTerminated {
		flow.Epoch, flow.Progress.Checkpoint = r.fence.Epoch, r.checkpoint
		p.discard(limit, flow)
	}
	_, err := persist(limit, func() (records.Flow, error) { return p.store.MoveFlow(limit, m) })
	log := p.log.With("record", flow.Record, "epoch", r.fence.Epoch, "state", e.State, "bytes", e.Bytes, "reason", e.Reason)
	if err != nil {
		log.WarnContext(ctx, "flow's end is not written", "error", err)
	} else {
		log.InfoContext(ctx, "flow ends")
	}
	p.kick()
	switch {
	case errors.Is(err, records.ErrFenced) && !e.State.Terminal(): // to end may have been wanted since
		return p.overtaken(limit, r, flow)
	case errors.Is(err, records.ErrFenced):
		return interrupted("overtaken")
	case e.State.Terminal():
		return e.completion()
	}
	return interrupted("suspended")
}

// writePatience is how long a flow's ending is tried to be written before it
// goes with the record. It is shorter than a margin, so that work returns in
// time after its lease has ended.
const writePatience = 2 * time.Second
