package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// Reserve implements [records.Records].
func (s *Store) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	if err := r.Validate(); err != nil {
		return records.Reserved{}, fmt.Errorf("reserve: %w", err)
	}
	weight := len(r.Realm) + len(r.Key) + len(r.Operation) + len(r.Resource) + len(r.Request)
	return decide(ctx, s, "reserve", weight, func(t *tx) (records.Reserved, error) { return t.reserve(r) })
}

func (t *tx) reserve(r records.Reservation) (records.Reserved, error) {
	now := t.now()
	var claim struct {
		Epoch int64  `db:"epoch"`
		URL   string `db:"executor_url"`
	}
	won := t.one(&claim, reserve, now, now-micros(t.config.Grace), r.ID[:],
		[]byte(r.Realm), []byte(r.Key), []byte(r.Operation), []byte(r.Resource), r.Fingerprint[:],
		r.By[:], r.Attempt[:], r.Request)
	if !won {
		return t.standing(r, now)
	}
	return records.Reserved{Owned: true, Held: records.Held{Record: records.Record{
		ID: r.ID, Realm: r.Realm, Key: r.Key, Operation: r.Operation, Resource: r.Resource,
		Fingerprint: r.Fingerprint, Request: r.Request,
		State: records.InProgress, Executor: r.By, ExecutorURL: claim.URL,
		Epoch: claim.Epoch, Attempt: r.Attempt, CreatedAt: instant(now),
	}}}, nil
}

// standing is what a reservation finds that claimed nothing: its own claim of
// a call before, another's record, or a key that it may not claim.
func (t *tx) standing(r records.Reservation, now int64) (records.Reserved, error) {
	held, err := t.load(r.ID, now)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return records.Reserved{}, records.ErrNotActive
	case err != nil:
		return records.Reserved{}, err
	}
	rec := held.Record
	if rec.State == records.Released || rec.State != records.InProgress && now-rec.ExpiresAt.UnixMicro() > micros(t.config.Grace) {
		return records.Reserved{}, records.ErrNotActive
	}
	return records.Reserved{
		Owned: rec.State == records.InProgress && rec.Executor == r.By && rec.Attempt == r.Attempt,
		Held:  held,
	}, nil
}

// load reads a record inside the transaction.
func (t *tx) load(id records.ID, now int64) (records.Held, error) {
	var row heldRow
	if !t.one(&row, load, id[:]) {
		return records.Held{}, records.ErrNotFound
	}
	return row.held(now)
}

// executor reads an executor inside the transaction.
func (t *tx) executor(id records.ExecutorID, now int64) (records.Executor, error) {
	var row executorRow
	if !t.one(&row, selectExecutor, id[:]) {
		return records.Executor{}, records.ErrNotFound
	}
	return row.executor(now)
}

// Load implements [records.Records]. It reads the last commit and waits for no
// writer, so there is nothing to gain from batches.
func (s *Store) Load(ctx context.Context, id records.ID) (records.Held, error) {
	row, err := readOne[heldRow](ctx, s, "load record", load, id[:])
	if err != nil {
		return records.Held{}, err
	}
	return row.held(s.config.Clock().UnixMicro())
}

// TakeOver implements [records.Records].
func (s *Store) TakeOver(ctx context.Context, to records.TakeOver) (records.Record, error) {
	if err := to.Validate(); err != nil {
		return records.Record{}, fmt.Errorf("take over: %w", err)
	}
	return decide(ctx, s, "take over", 0, func(t *tx) (records.Record, error) {
		moved := t.exec(takeOver, to.By[:], to.Attempt[:], to.ID[:], to.From.Executor[:], to.From.Epoch, to.SignedNotRunning)
		return t.taken(moved, to.ID, to.By, to.Attempt, func(r records.Record) bool {
			return r.State == records.InProgress && r.Fence() == to.From &&
				(to.SignedNotRunning || to.By == to.From.Executor || t.terminal(to.From.Executor))
		})
	})
}

// ClaimUnknown implements [records.Records].
func (s *Store) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	if err := c.Validate(); err != nil {
		return records.Record{}, fmt.Errorf("claim unknown: %w", err)
	}
	return decide(ctx, s, "claim unknown", 0, func(t *tx) (records.Record, error) {
		moved := t.exec(claimUnknown, c.By[:], c.Attempt[:], c.ID[:], c.Epoch)
		return t.taken(moved, c.ID, c.By, c.Attempt, func(r records.Record) bool {
			return r.State == records.Unknown && r.Epoch == c.Epoch
		})
	})
}

// taken returns the record that a take-over or a claim has just moved, or moved
// before if its reply was lost. Otherwise it says why not: free tells whether
// the record was there to be had, so that only the taker can be at fault.
func (t *tx) taken(moved int64, id records.ID, by records.ExecutorID, attempt records.Token, free func(records.Record) bool) (records.Record, error) {
	held, err := t.load(id, t.now())
	r := held.Record
	switch {
	case errors.Is(err, records.ErrNotFound):
		return records.Record{}, records.ErrFenced
	case err != nil:
		return records.Record{}, err
	case moved == 1, r.State == records.InProgress && r.Executor == by && r.Attempt == attempt:
		return r, nil
	case free(r):
		return records.Record{}, records.ErrNotActive
	}
	return records.Record{}, records.ErrFenced
}

func (t *tx) terminal(id records.ExecutorID) bool {
	e, err := t.executor(id, 0)
	return err == nil && e.State.Terminal()
}
