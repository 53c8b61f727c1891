package postgres

import (
	"context"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// transfer is a claim of one record by its id: what to send, and how to tell
// from the record why it changed nothing.
type transfer struct {
	verb    string
	text    string
	args    []any
	id      records.ID
	by      records.ExecutorID
	attempt records.Token
	// fits reports whether the claim would hold for the record as it stands.
	fits func(records.Held) bool
}

// TakeOver moves an in-progress record from a dead executor, or one that is
// not running it, to another.
func (s *Store) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	if err := t.Validate(); err != nil {
		return records.Record{}, err
	}
	return s.transfer(ctx, transfer{
		verb: "take over", id: t.ID, by: t.By, attempt: t.Attempt,
		text: takeOver,
		args: []any{t.By.String(), t.Attempt[:], t.ID[:], t.From.Executor.String(), t.From.Epoch, t.SignedNotRunning},
		fits: func(h records.Held) bool {
			return h.Record.State == records.InProgress && h.Record.Fence() == t.From &&
				(t.SignedNotRunning || t.From.Executor == t.By || h.Executor.State.Terminal())
		},
	})
}

// ClaimUnknown moves an unknown record to in progress, for a reconciler.
func (s *Store) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	if err := c.Validate(); err != nil {
		return records.Record{}, err
	}
	return s.transfer(ctx, transfer{
		verb: "claim unknown", id: c.ID, by: c.By, attempt: c.Attempt,
		text: claimUnknown,
		args: []any{c.By.String(), c.Attempt[:], c.ID[:], c.Epoch},
		fits: func(h records.Held) bool { return h.Record.State == records.Unknown && h.Record.Epoch == c.Epoch },
	})
}

func (s *Store) transfer(ctx context.Context, t transfer) (records.Record, error) {
	return call(ctx, s, func(ctx context.Context) (records.Record, error) {
		rec, err := s.move(ctx, t)
		if err == nil {
			return rec, nil
		}
		return records.Record{}, fmt.Errorf("%s: %w", t.verb, err)
	})
}

// move sends the claim. If it changed nothing the record says why: it is the
// caller's already, by a reply that was lost; or it is not what the caller
// believes; or the caller may not claim. If none of these, what stood in the
// way has gone in between, and the claim is sent once more.
func (s *Store) move(ctx context.Context, t transfer) (records.Record, error) {
	for range 2 {
		var rows []recordRow
		err := s.data.attempt(ctx, "claim", func(ctx context.Context) error {
			return s.data.selects(ctx, &rows, t.text, t.args...)
		})
		if err != nil {
			return records.Record{}, err
		}
		if len(rows) > 0 {
			return rows[0].record()
		}
		found, err := s.loadRows(ctx, s.data, 1, func(int) (records.ExecutorID, records.ID) { return t.by, t.id })
		if err != nil {
			return records.Record{}, err
		}
		if !found[0].found() {
			return records.Record{}, records.ErrFenced
		}
		held, err := found[0].held()
		if err != nil {
			return records.Record{}, err
		}
		switch r := held.Record; {
		case r.State == records.InProgress && r.Executor == t.by && r.Attempt == t.attempt:
			return r, nil
		case !t.fits(held):
			return records.Record{}, records.ErrFenced
		case !found[0].askerActive():
			return records.Record{}, records.ErrNotActive
		}
	}
	return records.Record{}, records.ErrFenced
}
