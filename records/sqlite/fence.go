package sqlite

import (
	"context"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// Fence implements [records.Executors].
func (s *Store) Fence(ctx context.Context, c records.Suspicion) (records.Executor, error) {
	if err := records.ValidateReason(c.Reason); err != nil {
		return records.Executor{}, fmt.Errorf("fence: %w", err)
	}
	return decide(ctx, s, "fence", 0, func(t *tx) (records.Executor, error) {
		now := t.now()
		conditions := []any{
			now, c.Suspect[:], c.Observer[:], c.Beat, c.Probed, c.BeatUnchanged, c.ObserverBeat + c.ObserverBeats,
		}
		landed := t.exec(fence, append(conditions, c.Reason)...)
		return t.fenced(landed, c.Suspect, now, func() error { return t.refusal(conditions) })
	})
}

// refusal says why a fence did not land.
func (t *tx) refusal(conditions []any) error {
	var held struct {
		Unrefuted   bool `db:"unrefuted"`
		Unprotected bool `db:"unprotected"`
		Fit         bool `db:"fit"`
	}
	t.one(&held, explainFence, conditions...)
	switch {
	case !held.Unrefuted:
		return records.ErrRefuted
	case !held.Unprotected:
		return records.ErrLeaseHeld
	case !held.Fit:
		return records.ErrObserverUnfit
	}
	return records.ErrBraked
}

// FenceByOperator implements [records.Executors].
func (s *Store) FenceByOperator(ctx context.Context, c records.Condemnation) (records.Executor, error) {
	if err := c.Validate(); err != nil {
		return records.Executor{}, fmt.Errorf("fence by operator: %w", err)
	}
	return decide(ctx, s, "fence by operator", 0, func(t *tx) (records.Executor, error) {
		now := t.now()
		before, err := t.executor(c.Executor, now)
		if err != nil {
			return records.Executor{}, err
		}
		landed := t.exec(fenceByOperator, now, c.Executor[:], c.Force, c.RowReason())
		if landed == 1 {
			t.note(records.Event{
				At: instant(now), Kind: records.EventFenced, Executor: c.Executor, Actor: c.Actor, Reason: c.Reason,
				Before: string(before.State), After: string(records.Fenced),
			})
		}
		return t.fenced(landed, c.Executor, now, func() error { return records.ErrLeaseHeld })
	})
}

// fenced returns the suspect's row if it is terminal, by this call or before
// it, and the reason otherwise.
func (t *tx) fenced(landed int64, id records.ExecutorID, now int64, reason func() error) (records.Executor, error) {
	e, err := t.executor(id, now)
	if err == nil && landed == 0 && !e.State.Terminal() {
		return records.Executor{}, reason()
	}
	return e, err
}
