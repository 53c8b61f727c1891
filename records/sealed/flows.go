package sealed

import (
	"context"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Flows are flows whose messages are sealed, and the bodies of their callbacks:
// they carry what lets a data plane in at both ends, and others in at the data
// plane. Methods that carry none are the store's own.
type Flows struct {
	records.Flows
	sealer *Sealer
}

var _ records.Flows = (*Flows)(nil)

// OverFlows is the store's flows with their messages sealed, each bound to its
// flow's record, and the bodies of their callbacks.
func (s *Sealer) OverFlows(flows records.Flows) *Flows { return &Flows{flows, s} }

func (f *Flows) seal(id records.ID, message []byte) ([]byte, error) {
	if message == nil {
		return nil, nil
	}
	sealed, err := f.sealer.request(id, message)
	if len(sealed) > records.MaxFlowMessageBytes {
		return nil, &records.InvalidError{Field: "message", Reason: "over 256 KiB, as it would be stored"}
	}
	return sealed, err
}

// opened is a flow with its message as it was given. One that cannot be opened
// is handed on to nobody who might act on it.
func (f *Flows) opened(ctx context.Context, flow records.Flow, err error) (records.Flow, error) {
	if err != nil {
		return flow, err
	}
	message, err := f.sealer.value(ctx, &records.Record{ID: flow.Record, State: records.InProgress}, bond{purpose: purposeRequest, id: flow.Record}, flow.Message)
	if err != nil {
		return records.Flow{}, fmt.Errorf("flow: %w", err)
	}
	flow.Message = message
	return flow, nil
}

// CreateFlow seals the message and the callback, and opens that of what stands there.
func (f *Flows) CreateFlow(ctx context.Context, n records.NewFlow) (records.Flow, bool, error) {
	var err error
	if n.Message, err = f.seal(n.Record, n.Message); err != nil {
		return records.Flow{}, false, fmt.Errorf("create flow: %w", err)
	}
	n.Callback = f.sealCallback(n.ID, n.Callback)
	flow, fresh, err := f.Flows.CreateFlow(ctx, n)
	flow, err = f.opened(ctx, flow, err)
	return flow, fresh, err
}

// LoadFlow opens the message. A callback that cannot be opened hides nothing.
func (f *Flows) LoadFlow(ctx context.Context, id string) (records.HeldFlow, error) {
	held, err := f.Flows.LoadFlow(ctx, id)
	if held.Callback != nil {
		_ = f.openCallback(held.Callback) // it says so itself, and whoever is to deliver it is told
	}
	held.Flow, err = f.opened(ctx, held.Flow, err)
	return held, err
}

// MoveFlow seals the message and the callback if there are any, and opens what
// stands there.
func (f *Flows) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if m.Message != nil {
		held, err := f.Flows.LoadFlow(ctx, m.ID) // the record that a message is bound to never changes
		if err != nil {
			return records.Flow{}, fmt.Errorf("move flow: %w", err)
		}
		if m.Message, err = f.seal(held.Flow.Record, m.Message); err != nil {
			return records.Flow{}, fmt.Errorf("move flow: %w", err)
		}
	}
	m.Callback = f.sealCallback(m.ID, m.Callback)
	flow, err := f.Flows.MoveFlow(ctx, m)
	return f.opened(ctx, flow, err)
}

// WantFlow opens the message.
func (f *Flows) WantFlow(ctx context.Context, id string, w records.FlowWish) (records.Flow, error) {
	flow, err := f.Flows.WantFlow(ctx, id, w)
	return f.opened(ctx, flow, err)
}

// StrayFlows leaves out flows whose messages cannot be opened here: a node with
// the key will see to them.
func (f *Flows) StrayFlows(ctx context.Context, idle time.Duration, after string, limit int) ([]records.Flow, error) {
	for {
		strays, err := f.Flows.StrayFlows(ctx, idle, after, limit)
		var readable []records.Flow
		for _, flow := range strays {
			after = flow.ID
			if flow, bad := f.opened(ctx, flow, nil); bad == nil {
				readable = append(readable, flow)
			}
		}
		// A page of which nothing can be read is not the end.
		if err != nil || len(readable) > 0 || len(strays) == 0 || len(strays) < limit {
			return readable, err
		}
	}
}

// DueCallbacks opens the bodies. One that cannot be opened is returned as
// Sealed, without its body, and everybody is told: it is for the caller to put
// it off, and it is in nobody's way until then.
func (f *Flows) DueCallbacks(ctx context.Context, patience time.Duration, limit int) ([]records.Callback, error) {
	due, err := f.Flows.DueCallbacks(ctx, patience, limit)
	for i := range due {
		if bad := f.openCallback(&due[i]); bad != nil {
			reason := f.sealer.unsealable(bad)
			f.sealer.config.Logger.ErrorContext(ctx, "sealed value cannot be opened", "version", due[i].Version, "event", due[i].Event,
				"value", purposeCallback.String(), "reason", string(reason), "error", bad)
		}
	}
	return due, err
}

// callbackBond binds a body to its flow, to what it tells and to where it goes:
// who can write to the store cannot have it sent elsewhere. A move under a fence
// does not know which version of the flow it makes, so that is no part of it.
func callbackBond(flow string, c records.NewCallback) bond {
	return bond{purpose: purposeCallback, id: records.ID(records.FingerprintOf(flow, c.Event, c.URL))}
}

func (f *Flows) sealCallback(flow string, c *records.NewCallback) *records.NewCallback {
	if c == nil {
		return nil
	}
	sealed := *c
	sealed.Body = f.sealer.Keys().sealed(callbackBond(flow, *c), c.Body, randomNonce)
	return &sealed
}

func (f *Flows) openCallback(c *records.Callback) (err error) {
	c.Body, err = f.sealer.Keys().open(callbackBond(c.Flow, c.NewCallback), c.Body)
	c.Sealed = err != nil
	return err
}
