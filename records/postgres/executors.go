package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// Heartbeat adds a beat and returns the row.
func (s *Store) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return call(ctx, s, func(ctx context.Context) (records.Executor, error) {
		var rows []executorRow
		err := s.beats.attempt(ctx, "heartbeat", func(ctx context.Context) error {
			return s.beats.selects(ctx, &rows, heartbeat, id.String())
		})
		return first(rows, err, fmt.Errorf("heartbeat: %w", records.ErrNotActive))
	})
}

// Drain moves active to draining. When it returns, no claim of the executor is
// on its way.
func (s *Store) Drain(ctx context.Context, id records.ExecutorID) error {
	return s.change(ctx, "drain", drain, id.String())
}

// Retire moves draining to gone.
func (s *Store) Retire(ctx context.Context, id records.ExecutorID) error {
	return s.change(ctx, "retire", retire, id.String())
}

// Attest notes whether a peer has just reached the executor at its URL.
func (s *Store) Attest(ctx context.Context, id records.ExecutorID, proven bool) error {
	return s.change(ctx, "attest", attest, id.String(), proven)
}

// change writes one executor's row, which its state must allow.
func (s *Store) change(ctx context.Context, name, text string, args ...any) error {
	return do(ctx, s, func(ctx context.Context) error {
		return s.control.attempt(ctx, name, func(ctx context.Context) error {
			n, err := s.control.executes(ctx, text, args...)
			if err == nil && n == 0 {
				return records.ErrNotActive
			}
			return err
		})
	})
}

// PurgeExecutors deletes terminal executors that hold nothing.
func (s *Store) PurgeExecutors(ctx context.Context, age time.Duration) (int, error) {
	return call(ctx, s, func(ctx context.Context) (n int, err error) {
		err = s.control.attempt(ctx, "purge executors", func(ctx context.Context) error {
			return s.control.transact(ctx, func(ctx context.Context, t transaction) error {
				var terminal []uuid
				if err := t.selects(ctx, &terminal, lockTerminal, age.Microseconds()); err != nil {
					return err
				}
				ids := make([]records.ExecutorID, len(terminal))
				for i, id := range terminal {
					ids[i] = records.ExecutorID(id)
				}
				n, err = t.executes(ctx, purgeExecutors, uuids(ids...))
				return err
			})
		})
		return n, err
	})
}

// LoadExecutor reads one executor, of any state.
func (s *Store) LoadExecutor(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return call(ctx, s, func(ctx context.Context) (records.Executor, error) {
		var rows []executorRow
		err := s.control.attempt(ctx, "load executor", func(ctx context.Context) error {
			return s.control.selects(ctx, &rows, selectExecutor, id.String())
		})
		return first(rows, err, fmt.Errorf("load executor: %w", records.ErrNotFound))
	})
}

// ListExecutors reads the executors in the given states, all if none is given.
func (s *Store) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	return call(ctx, s, func(ctx context.Context) ([]records.Executor, error) {
		names := make([]string, len(states))
		for i, state := range states {
			names[i] = string(state)
		}
		var rows []executorRow
		err := s.control.attempt(ctx, "list executors", func(ctx context.Context) error {
			return s.control.selects(ctx, &rows, listExecutors, pq.StringArray(names))
		})
		if err != nil {
			return nil, err
		}
		found := make([]records.Executor, len(rows))
		for i, row := range rows {
			found[i] = row.executor()
		}
		return found, nil
	})
}

// Register adds an active executor, in place of a boot of its slot that the
// caller found silent. Registrations queue with fences, so between looking at
// the slot's holder and writing nobody fences or registers.
func (s *Store) Register(ctx context.Context, r records.Registration) (records.Executor, error) {
	if err := r.Validate(); err != nil {
		return records.Executor{}, err
	}
	return call(ctx, s, func(ctx context.Context) (records.Executor, error) {
		var e records.Executor
		err := s.control.attempt(ctx, "register", func(ctx context.Context) error {
			return s.control.transact(ctx, func(ctx context.Context, t transaction) (err error) {
				e, err = register(ctx, t, r)
				return err
			})
		})
		if err != nil {
			return records.Executor{}, err // what e holds was rolled back
		}
		return e, nil
	})
}

func register(ctx context.Context, t transaction, r records.Registration) (records.Executor, error) {
	mine, err := t.executor(ctx, records.ErrNotFound, selectExecutor, r.ID.String())
	if !errors.Is(err, records.ErrNotFound) {
		return mine, err // a repeat: whatever became of the boot stands
	}
	holder, err := t.executor(ctx, records.ErrNotFound, selectHolder, r.Slot)
	if err == nil {
		err = replace(ctx, t, r, holder.ID)
	}
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return records.Executor{}, err
	}
	return t.executor(ctx, nil, insertExecutor, r.ID.String(), r.Slot, r.URL, []byte(r.PublicKey),
		string(r.Policy), r.LeaseTTL.Microseconds())
}

// replace fences the holder of a slot, if it is the boot that was found silent
// and its policy allows.
func replace(ctx context.Context, t transaction, r records.Registration, holder records.ExecutorID) error {
	if holder == r.Replaces.Executor {
		if _, err := t.executes(ctx, lockExecutor, holder.String()); err != nil {
			return err
		}
		n, err := t.executes(ctx, fenceReplaced, holder.String(), r.Replaces.Beat, r.ID.String())
		if err != nil || n > 0 {
			return err
		}
	}
	// It is another one, or it beat, or its lease runs. Show it as it is now.
	now, err := t.executor(ctx, nil, selectExecutor, holder.String())
	if err != nil {
		return err
	}
	return &records.SlotTakenError{Holder: now}
}

// first returns the one row of an answer, or missing if there is none.
func first(rows []executorRow, err, missing error) (records.Executor, error) {
	if err != nil {
		return records.Executor{}, err
	}
	if len(rows) == 0 {
		return records.Executor{}, missing
	}
	return rows[0].executor(), nil
}
