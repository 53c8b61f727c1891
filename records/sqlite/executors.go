package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Register implements [records.Executors].
func (s *Store) Register(ctx context.Context, r records.Registration) (records.Executor, error) {
	if err := r.Validate(); err != nil {
		return records.Executor{}, fmt.Errorf("register: %w", err)
	}
	return decide(ctx, s, "register", 0, func(t *tx) (e records.Executor, _ error) {
		return e, t.whole(func() (err error) {
			e, err = t.register(r)
			return err
		})
	})
}

func (t *tx) register(r records.Registration) (records.Executor, error) {
	now := t.now()
	if e, err := t.executor(r.ID, now); !errors.Is(err, records.ErrNotFound) {
		return e, err // a repeat, or unreadable
	}
	var slot string
	if t.one(&slot, foreignExecutor, now, t.config.BootID) {
		return records.Executor{}, fmt.Errorf("%w: slot %q", records.ErrForeignHost, slot)
	}
	t.exec(fenceReplaced, now, r.ID[:], r.Slot, r.Replaces.Executor[:], r.Replaces.Beat)
	added := t.exec(insertExecutor, now, r.ID[:], r.Slot, r.URL, []byte(r.PublicKey), string(r.Policy), micros(r.LeaseTTL), t.config.BootID)
	if added == 1 {
		return t.executor(r.ID, now)
	}
	var row executorRow
	t.one(&row, selectHolder, r.Slot)
	holder, err := row.executor(now)
	if err != nil {
		return records.Executor{}, err
	}
	return records.Executor{}, &records.SlotTakenError{Holder: holder}
}

// Heartbeat implements [records.Executors].
func (s *Store) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return decide(ctx, s, "heartbeat", 0, func(t *tx) (records.Executor, error) {
		now := t.now()
		var row executorRow
		if !t.one(&row, heartbeat, now, id[:]) {
			return records.Executor{}, records.ErrNotActive
		}
		return row.executor(now)
	})
}

// Drain implements [records.Executors].
func (s *Store) Drain(ctx context.Context, id records.ExecutorID) error {
	return s.move(ctx, "drain", func(t *tx) int64 { return t.exec(drain, id[:]) })
}

// Retire implements [records.Executors].
func (s *Store) Retire(ctx context.Context, id records.ExecutorID) error {
	return s.move(ctx, "retire", func(t *tx) int64 { return t.exec(retire, id[:]) })
}

// Attest implements [records.Executors].
func (s *Store) Attest(ctx context.Context, id records.ExecutorID, proven bool) error {
	return s.move(ctx, "attest", func(t *tx) int64 {
		var at any
		if proven {
			at = t.now()
		}
		return t.exec(attest, at, id[:])
	})
}

// move runs an update that only fits an executor in the right state.
func (s *Store) move(ctx context.Context, op string, update func(t *tx) int64) error {
	return s.write(ctx, op, func(t *tx) error {
		if update(t) == 0 {
			return records.ErrNotActive
		}
		return nil
	})
}

// LoadExecutor implements [records.Executors].
func (s *Store) LoadExecutor(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	row, err := readOne[executorRow](ctx, s, "load executor", selectExecutor, id[:])
	if err != nil {
		return records.Executor{}, err
	}
	return row.executor(s.config.Clock().UnixMicro())
}

// ListExecutors implements [records.Executors].
func (s *Store) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	if len(states) == 0 {
		states = []records.ExecutorState{records.Active, records.Draining, records.Gone, records.Fenced}
	}
	in, err := json.Marshal(states)
	if err != nil {
		return nil, fmt.Errorf("list executors: %w", err)
	}
	rows, err := readAll[executorRow](ctx, s, "list executors", listExecutors, string(in))
	if err != nil {
		return nil, err
	}
	now := s.config.Clock().UnixMicro()
	all := make([]records.Executor, len(rows))
	for i := range rows {
		if all[i], err = rows[i].executor(now); err != nil {
			return nil, fmt.Errorf("list executors: %w", err)
		}
	}
	return all, nil
}

// PurgeExecutors implements [records.Executors].
func (s *Store) PurgeExecutors(ctx context.Context, age time.Duration) (int, error) {
	n, err := decide(ctx, s, "purge executors", 0, func(t *tx) (int64, error) {
		return t.exec(purgeExecutors, t.now()-micros(age)), nil
	})
	return int(n), err
}
