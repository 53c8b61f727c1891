package sealed

import (
	"context"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Flows are flows whose messages are sealed: they carry what lets a data plane
// in at both ends. Methods that carry none are the store's own.
type Flows struct {
	records.Flows
	sealer *Sealer
}

var _ records.Flows = (*Flows)(nil)

// OverFlows is the store's flows with their messages sealed, each bound to its
// flow's record.
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

// CreateFlow seals the message, and opens that of what stands there.
func (f *Flows) CreateFlow(ctx context.Context, n records.NewFlow) (records.Flow, bool, error) {
	var err error
	if n.Message, err = f.seal(n.Record, n.Message); err != nil {
		return records.Flow{}, false, fmt.Errorf("create flow: %w", err)
	}
	flow, fresh, err := f.Flows.CreateFlow(ctx, n)
	flow, err = f.opened(ctx, flow, err)
	return flow, fresh, err
}

// LoadFlow opens the message.
func (f *Flows) LoadFlow(ctx context.Context, id string) (records.HeldFlow, error) {
	held, err := f.Flows.LoadFlow(ctx, id)
	held.Flow, err = f.opened(ctx, held.Flow, err)
	return held, err
}

// MoveFlow seals the message if there is one, and opens what stands there.
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
