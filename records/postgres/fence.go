package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/probate-dev/probate/records"
)

// explanation says which conditions of a fence held, a moment after it changed
// nothing and behind the same lock.
type explanation struct {
	Terminal    bool `db:"terminal"`
	Unrefuted   bool `db:"unrefuted"`
	Unprotected bool `db:"unprotected"`
	Observed    bool `db:"observed"`
	Unbraked    bool `db:"unbraked"`
}

// refusal is the first condition that did not hold; nil if all do now.
func (e explanation) refusal() error {
	switch {
	case !e.Unrefuted:
		return records.ErrRefuted
	case !e.Unprotected:
		return records.ErrLeaseHeld
	case !e.Observed:
		return records.ErrObserverUnfit
	case !e.Unbraked:
		return records.ErrBraked
	}
	return nil
}

// Fence declares the suspect dead and returns its row.
func (s *Store) Fence(ctx context.Context, c records.Suspicion) (records.Executor, error) {
	if err := records.ValidateReason(c.Reason); err != nil {
		return records.Executor{}, err
	}
	conditions := []any{
		c.Suspect.String(), c.Beat, c.Probed, c.BeatUnchanged,
		c.Observer.String(), c.ObserverBeat + c.ObserverBeats,
	}
	return s.fencing(ctx, "fence", c.Suspect, func(ctx context.Context, t transaction) (bool, error) {
		n, err := t.executes(ctx, fence, slices.Concat(conditions, []any{c.Reason})...)
		if err != nil || n > 0 {
			return true, err
		}
		var why []explanation
		if err := t.selects(ctx, &why, explainFence, conditions...); err != nil {
			return true, err
		}
		if len(why) == 0 {
			return true, records.ErrNotFound
		}
		if why[0].Terminal {
			return true, nil
		}
		refusal := why[0].refusal()
		return refusal != nil, refusal
	})
}

// FenceByOperator fences at a person's word.
func (s *Store) FenceByOperator(ctx context.Context, c records.Condemnation) (records.Executor, error) {
	if err := c.Validate(); err != nil {
		return records.Executor{}, err
	}
	return s.fencing(ctx, "fence by operator", c.Executor, func(ctx context.Context, t transaction) (bool, error) {
		var was []string
		if err := t.selects(ctx, &was, fenceByOperator, c.Executor.String(), c.RowReason(), c.Force); err != nil {
			return true, err
		}
		if len(was) > 0 {
			return true, t.note(ctx, records.Event{
				Kind: records.EventFenced, Executor: c.Executor, Actor: c.Actor, Reason: c.Reason,
				Before: was[0], After: string(records.Fenced),
			})
		}
		e, err := t.executor(ctx, records.ErrNotFound, selectExecutor, c.Executor.String())
		if err != nil || e.State.Terminal() {
			return true, err
		}
		if !c.Force && !e.Stale() {
			return true, records.ErrLeaseHeld
		}
		return false, nil
	})
}

// fencing runs a fence behind all others, and behind the suspect's claims that
// are on their way, and returns the suspect's row. try reports whether it is
// decided; it is not if a clock moved a condition between the statement that
// decides and the one that explains.
func (s *Store) fencing(ctx context.Context, name string, id records.ExecutorID,
	try func(context.Context, transaction) (decided bool, _ error),
) (records.Executor, error) {
	return call(ctx, s, func(ctx context.Context) (records.Executor, error) {
		var e records.Executor
		err := s.control.attempt(ctx, name, func(ctx context.Context) error {
			return s.control.transact(ctx, func(ctx context.Context, t transaction) error {
				if _, err := t.executes(ctx, lockExecutor, id.String()); err != nil {
					return err
				}
				for range 3 {
					decided, err := try(ctx, t)
					if err != nil {
						return err
					}
					if decided {
						e, err = t.executor(ctx, records.ErrNotFound, selectExecutor, id.String())
						return err
					}
				}
				return fmt.Errorf("conditions do not stand still: %w", records.ErrUnavailable)
			})
		})
		if err != nil {
			return records.Executor{}, err
		}
		return e, nil
	})
}
