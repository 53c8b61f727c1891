package transfer

import (
	"context"
	"errors"
	"net/http"

	"github.com/probate-dev/probate/records"
)

// prepare makes a flow that does not move yet. Where answers are asynchronous it
// is being prepared first, and the rest is told by callback.
func (p *Plane) prepare(r *http.Request) (*answer, error) {
	m, err := p.readMessage(r)
	if err != nil {
		return nil, err
	}
	if !m.tracked() {
		return nil, &invalid{[]error{errors.New("trackable: what is not tracked cannot be prepared")}}
	}
	t := Task{Prepare: &m}
	f := p.newFlow(m, false, records.FlowPrepared)
	address, tokens, err := p.takesIn(m.ProcessID, t)
	if err != nil {
		return nil, err
	}
	f.Tokens = tokens
	if p.config.Async { // what lets the provider in is made, and told, with the next move
		f.State, f.Tokens, address = records.FlowPreparing, nil, nil
	}
	stored, fresh, err := p.create(r.Context(), f, t)
	if err != nil {
		return nil, err
	}
	a := &answer{status: http.StatusOK, flow: stored, address: address, replayed: !fresh}
	if !fresh {
		if a.address, err = nil, sameFlow(stored, m); err != nil {
			return nil, err
		}
	}
	switch {
	case stored.State == records.FlowPreparing: // by who died since, perhaps
		a.status = http.StatusAccepted
		p.prepareSoon(stored.ID)
	case !fresh && m.direction() == Push && !stored.Moves:
		a.flow, a.address, err = p.reissue(r.Context(), stored.ID)
	}
	return a, err
}

// sameFlow refuses to prepare a second flow under the id of one that stands.
func sameFlow(stored records.Flow, m Message) error {
	known, err := taskOf(stored.Message)
	if err != nil {
		return err
	}
	if known.Prepare == nil || known.Prepare.fingerprint(false) != m.fingerprint(false) {
		return refused(http.StatusConflict, "flow_exists", "there is a data flow of this processId, for something else")
	}
	return nil
}

// takesIn makes the address at which a provider's push is received, and the
// token in it. A pull has none.
func (p *Plane) takesIn(id string, t Task) (*DataAddress, []byte, error) {
	m := t.message()
	if m.direction() != Push {
		return nil, nil, nil
	}
	if _, err := p.config.Ends.Inbox(t); err != nil {
		return nil, nil, &invalid{[]error{err}}
	}
	return p.issue(id, m.Profile, nil)
}

// prepareSoon has a flow prepared by [Plane.Run]. If that has too much to do it
// is found there later, as what a dead node has left.
func (p *Plane) prepareSoon(id string) {
	select {
	case p.preparing <- id:
	default:
	}
}

// preparingAtOnce is how many flows wait here to be prepared.
const preparingAtOnce = 64

// prepareAll prepares what was asked for here, until ctx ends.
func (p *Plane) prepareAll(ctx context.Context) {
	for {
		select {
		case id := <-p.preparing:
			if err := p.becomePrepared(ctx, id); err != nil {
				p.complain(ctx, "prepare a flow", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// becomePrepared brings a flow from preparing to prepared, and puts word of
// that, with the address of a push, into the outbox in the same write. Of many
// that do so at once, on whatever nodes, one does.
func (p *Plane) becomePrepared(ctx context.Context, id string) error {
	held, err := p.store.LoadFlow(ctx, id)
	f := held.Flow
	if err != nil || f.State != records.FlowPreparing {
		return err
	}
	t, err := taskOf(f.Message)
	if err != nil {
		return err
	}
	address, tokens, err := p.takesIn(id, t)
	if err != nil {
		return err
	}
	_, err = p.store.MoveFlow(ctx, records.FlowMove{
		ID: id, Attempt: records.NewToken(), Version: f.Version, To: records.FlowPrepared, Tokens: tokens,
		Callback: callback(f, p.config.ControlPlane, eventPrepared, statusMessage{State: string(records.FlowPrepared), DataAddress: address}),
	})
	p.kick()
	return err
}
