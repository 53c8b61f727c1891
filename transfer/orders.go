package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer/move"
)

// order brings a flow to suspended or terminated, wherever its bytes are moved,
// and returns when they have stopped. What is wanted is written down first, so
// whoever has the flow, or takes it over, heeds it also if no word reaches it.
func (p *Plane) order(ctx context.Context, id string, w records.FlowWish) (records.Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.OrderTimeout)
	defer cancel()
	attempt, to, written := records.NewToken(), w.State, false
	for try := 0; ; try++ {
		held, err := p.store.LoadFlow(ctx, id)
		if err != nil {
			return records.Flow{}, unlessWritten(ctx, written, err)
		}
		f := held.Flow
		switch {
		case f.State == to && (try > 0 || to == records.FlowSuspended):
			return f, nil
		case f.State.Terminal():
			return f, refused(http.StatusConflict, "flow_has_ended", "the data flow is "+string(f.State)+", which is final")
		case !f.State.CanBecome(to):
			return f, refused(http.StatusConflict, "wrong_state", "a data flow that is "+string(f.State)+" cannot become "+string(to))
		}
		switch {
		case f.Moves && held.InProgress() && f.State.Running():
			if _, err = p.store.WantFlow(ctx, id, w); err == nil {
				written = true
				err = p.orderOwner(ctx, held, w)
			}
		case f.Moves && held.InProgress():
			err = p.free(ctx, held)
		default:
			now := w
			if f.State.Running() && f.Wanted == records.FlowTerminated && to != f.Wanted { // that stands, and nobody else is here to do it
				now = records.FlowWish{State: f.Wanted, By: f.WantedBy, Reason: f.Reason}
			}
			if f, err = p.moveIdle(ctx, f, now, attempt); err == nil && f.State == to {
				return f, nil
			}
		}
		if err != nil && !errors.Is(err, records.ErrFenced) {
			return f, unlessWritten(ctx, written, err)
		}
		if !sleep(ctx, min(time.Duration(try+1)*10*time.Millisecond, 250*time.Millisecond)) {
			return f, unlessWritten(ctx, written, fmt.Errorf("order: %w: %w", records.ErrUnavailable, context.Cause(ctx)))
		}
	}
}

// unlessWritten is err, or that the order stands although ctx has ended before
// it was carried out.
func unlessWritten(ctx context.Context, written bool, err error) error {
	if !written || ctx.Err() == nil {
		return err
	}
	return busy(http.StatusServiceUnavailable, "order_pending",
		"what is wanted is written down and will be done; who moves the bytes has not confirmed yet that they stopped", time.Second)
}

// Terminate ends a flow at an operator's wish, of which the control plane is
// told. Nil also if who moves the bytes
// has not confirmed yet that they have stopped: what is wanted is written down.
// ErrFenced: it has ended otherwise.
func (p *Plane) Terminate(ctx context.Context, id, reason string) error {
	_, err := p.order(ctx, id, records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: reason})
	if told, is := errors.AsType[*problem](err); is {
		switch told.code {
		case "order_pending":
			return nil
		case "flow_has_ended":
			return errors.Join(records.ErrFenced, err)
		}
	}
	return err
}

// moveIdle moves a flow that nobody runs, and takes away what it left.
func (p *Plane) moveIdle(ctx context.Context, f records.Flow, w records.FlowWish, attempt records.Token) (records.Flow, error) {
	to := w.State
	m := records.FlowMove{ID: f.ID, Attempt: attempt, Version: f.Version, To: to, Reason: w.Reason, Tokens: []byte{}}
	if told := toldOf(w.By, to); told != "" {
		m.Callback = p.callback(f, told, to, w.Reason)
	}
	if f.Moves && to.Terminal() {
		m.Progress = &records.Progress{Bytes: f.Progress.Bytes, Total: f.Progress.Total}
	}
	moved, err := p.store.MoveFlow(ctx, m)
	if err != nil {
		return f, err
	}
	p.kick()
	if to.Terminal() {
		p.discard(ctx, f)
	}
	if !f.Moves {
		p.cutEverywhere(ctx, f.ID)
	}
	return moved, nil
}

// toldOf is the callback that goes with what somebody wanted of a flow: a control
// plane knows what it has asked for itself.
func toldOf(by records.FlowAsker, to records.FlowState) string {
	if by == records.FlowControlPlane || to != records.FlowTerminated {
		return ""
	}
	return eventErrored
}

// discard takes away what a flow has begun at its sink. It is done as far as it
// can be from here; what stays has a name that nobody reads.
func (p *Plane) discard(ctx context.Context, f records.Flow) {
	t, err := taskOf(f.Message)
	if err == nil && !f.Moves {
		p.discardReceived(ctx, f, t)
		return
	}
	if err != nil || f.Attempts == 0 || !p.reaches(t) {
		return
	}
	sink, err := p.config.Ends.Sink(t)
	if err != nil {
		return
	}
	token := ""
	if c := checkpointOf(f.Progress.Checkpoint); c != nil {
		token = c.Token
	}
	if err := sink.Discard(ctx, move.Identity{Flow: f.ID, Epoch: f.Epoch}, token); err != nil {
		p.log.WarnContext(ctx, "leftovers at the sink", "record", f.Record, "error", err)
	}
}

// discardReceived takes away what a node that died was receiving for a flow
// that has ended. Nothing that is received now may be shown any more.
func (p *Plane) discardReceived(ctx context.Context, f records.Flow, t Task) {
	if t.Prepare == nil || t.message().direction() != Push {
		return
	}
	sink, err := p.config.Ends.Inbox(t)
	if err != nil {
		return
	}
	if err := sink.Discard(ctx, move.Identity{Flow: f.ID, Epoch: math.MaxInt64}, ""); err != nil {
		p.log.WarnContext(ctx, "leftovers of what was received", "record", f.Record, "error", err)
	}
}

// orderOwner has the owner of a running flow stop it, of which that is wanted. If
// it cannot be reached and is dead, the flow is taken over, which ends it.
func (p *Plane) orderOwner(ctx context.Context, h records.HeldFlow, w records.FlowWish) error {
	if h.Fence.Executor == p.config.Peers.Self() && p.halt(ctx, h.Flow.ID, h.Flow.Record, w.State) {
		return nil
	}
	if h.Fence.Executor != p.config.Peers.Self() {
		err := p.config.Peers.Heed(ctx, h.URL, h.Flow.ID)
		if err == nil {
			return nil
		}
		p.log.WarnContext(ctx, "owner of a flow not reached", "record", h.Flow.Record, "executor", h.Fence.Executor, "error", err)
	}
	_, err := p.ensure(ctx, h.Flow.ID, p.config.OrderTimeout)
	return err
}

// halt stops this process' copy and waits until nothing of it is left, record
// included. False: there is none.
func (p *Plane) halt(ctx context.Context, id string, record records.ID, to records.FlowState) bool {
	r := p.running(id)
	if r == nil {
		return false
	}
	r.cancel(&wanted{to})
	done, here := p.config.Coordinator.Entry(record)
	if !here {
		return true
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	return true
}

// heed is asked by another node: look at what the store says is wanted of a
// flow. It acts on nothing that the asker says.
func (p *Plane) heed(r *http.Request) (*answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), p.config.OrderTimeout)
	defer cancel()
	id := flowID(r)
	held, err := p.store.LoadFlow(ctx, id)
	if err != nil {
		return nil, err
	}
	f := held.Flow
	switch {
	case !f.Moves:
		p.lookAtStreams(f)
	case f.Wanted != "" && held.Fence.Executor == p.config.Peers.Self():
		if !p.halt(ctx, id, f.Record, f.Wanted) {
			return nil, refused(http.StatusNotFound, "flow_not_here", "this node does not move that data flow")
		}
		if held, err = p.store.LoadFlow(ctx, id); err != nil {
			return nil, err
		}
	}
	return &answer{status: http.StatusOK, flow: held.Flow}, nil
}
