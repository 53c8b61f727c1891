package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// ensure makes sure that somebody moves the bytes of a flow that runs, and
// returns how it stands then. Who moves them is asked first: only what nobody
// vouches for goes through the protocol, which probes, fences and takes over
// where that is due. The wait bounds that, not the copy, which goes on behind
// the caller.
func (p *Plane) ensure(ctx context.Context, id string, wait time.Duration) (records.HeldFlow, error) {
	deadline := time.Now().Add(wait)
	for {
		held, err := p.store.LoadFlow(ctx, id)
		if err != nil || !held.Flow.Moves || !held.Flow.State.Running() {
			return held, err
		}
		task, err := taskOf(held.Flow.Message)
		if err != nil {
			return held, err
		}
		left := time.Until(deadline)
		// Where it can be done matters only while it is to be done: any node may
		// take it over in order to end it.
		if held.Flow.Wanted == "" && !p.reaches(task) || p.vouched(ctx, held) || left < 0 {
			return held, nil
		}
		settled, err := p.enlist(ctx, held.Flow, left)
		if err != nil || settled {
			if err == nil {
				held, err = p.store.LoadFlow(ctx, id)
			}
			return held, err
		}
	}
}

// free has the record of a flow that does not run let go of, if its owner died
// between the two writes that stop a flow: to its row, and to its record.
func (p *Plane) free(ctx context.Context, h records.HeldFlow) error {
	if !h.Flow.Moves || h.Flow.State.Running() || !h.InProgress() || p.vouched(ctx, h) {
		return nil
	}
	_, err := p.enlist(ctx, h.Flow, startPatience)
	return err
}

// mayRun reports whether this node can do a flow's work.
func (p *Plane) mayRun(f records.Flow) bool {
	t, err := taskOf(f.Message)
	return err == nil && p.reaches(t)
}

// vouched reports whether somebody is known to move the flow's bytes now: this
// process, or one that signs for it.
func (p *Plane) vouched(ctx context.Context, h records.HeldFlow) bool {
	if p.running(h.Flow.ID) != nil {
		return true
	}
	if !h.InProgress() {
		return false
	}
	if h.Fence.Executor == p.config.Peers.Self() {
		_, here := p.config.Coordinator.Entry(h.Flow.Record)
		return here
	}
	r, err := p.store.Load(ctx, h.Flow.Record)
	return err == nil && r.Record.Fence() == h.Fence && p.config.Peers.Running(ctx, r)
}

// enlist asks the coordinator for the flow's execution, and returns when it has
// begun here, or is known to be somebody else's. False: look again.
func (p *Plane) enlist(ctx context.Context, f records.Flow, wait time.Duration) (settled bool, err error) {
	begun := make(chan struct{})
	asked := make(chan struct{})
	var answer takeover.Answer
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	once := sync.OnceFunc(func() { close(begun) })
	req := takeover.Request{
		Key: keyOf(f.ID), Operation: operation, Resource: f.Dataset, Fingerprint: f.Fingerprint, Stored: f.Message,
		Wait: wait, Terms: p.terms(),
	}
	go func() { // it is waited for on every way out of here
		defer close(asked)
		answer, err = p.config.Coordinator.Do(ctx, req, func(ctx context.Context) takeover.Completion { return p.work(ctx, f.ID, once) })
	}()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-begun: // the record and the flow's row say so: the copy is not waited for
		case <-look.C: // or another caller's execution has, with whom this one waits
			if r := p.running(f.ID); r == nil || !r.begun.Load() {
				continue
			}
		case <-asked:
			waiting = false
			continue
		}
		hangUp()
		<-asked
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("run flow: %w", err)
	}
	return p.absorb(ctx, f, answer)
}

// absorb makes of the coordinator's answer what the flow's row does not say
// yet.
func (p *Plane) absorb(ctx context.Context, f records.Flow, a takeover.Answer) (settled bool, err error) {
	switch a.Outcome {
	case takeover.InProgress:
		return true, nil // it runs, or its executor is being looked into
	case takeover.Executed, takeover.TookOver:
		return a.Completion.Kind != takeover.Untouched, nil
	case takeover.Replayed, takeover.Waited, takeover.Reconciled:
		return true, p.settle(ctx, f.ID, endingOf(a.Record.Response))
	case takeover.OutcomeUnknown:
		return true, p.settle(ctx, f.ID, ending{
			State: records.FlowTerminated, Told: eventErrored,
			Reason: fmt.Sprintf("given up: %d executors died or lost their lease while they moved it", a.Record.Takeovers),
		})
	case takeover.Reused:
		return false, refused(http.StatusConflict, "flow_differs", "the record of this flow was made for another request")
	}
	return false, fmt.Errorf("unknown outcome %s", a.Outcome)
}

// settle writes a flow's ending that is known from its record alone.
func (p *Plane) settle(ctx context.Context, id string, e ending) error {
	if e.State == "" {
		return fmt.Errorf("read the ending of a flow: %w", records.ErrCorrupt)
	}
	held, err := p.store.LoadFlow(ctx, id)
	if err != nil || held.Flow.State.Terminal() {
		return err
	}
	m := records.FlowMove{
		ID: id, Attempt: records.NewToken(), Version: held.Flow.Version, To: e.State, Reason: e.Reason, Tokens: []byte{},
		Progress: &records.Progress{Bytes: max(e.Bytes, held.Flow.Progress.Bytes), Total: held.Flow.Progress.Total, SHA256: e.SHA256},
	}
	if e.Told != "" {
		m.Callback = p.callback(held.Flow, e.Told, e.State, e.Reason)
	}
	_, err = p.store.MoveFlow(ctx, m)
	p.kick()
	if errors.Is(err, records.ErrFenced) {
		return nil // somebody else has written it, or goes on with it
	}
	return err
}
