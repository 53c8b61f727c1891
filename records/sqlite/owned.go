package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Finalize implements [records.Records].
func (s *Store) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("finalize: %w", err)
	}
	headers := records.AppendHeaders(nil, o.Response.Headers)
	weight := len(headers) + len(o.Response.Body)
	return s.end(ctx, "finalize", weight, id, f, records.Finalized, func(t *tx, now int64) int64 {
		return t.exec(finalize, now, id[:], f.Executor[:], f.Epoch, now+micros(o.Retention),
			o.Response.Status, headers, o.Response.Body)
	})
}

// Release implements [records.Records].
func (s *Store) Release(ctx context.Context, id records.ID, f records.Fence) error {
	return s.end(ctx, "release", 0, id, f, records.Released, func(t *tx, now int64) int64 {
		return t.exec(release, now, id[:], f.Executor[:], f.Epoch)
	})
}

// MarkUnknown implements [records.Records].
func (s *Store) MarkUnknown(ctx context.Context, id records.ID, f records.Fence, retention time.Duration) error {
	if err := records.ValidateRetention(retention); err != nil {
		return fmt.Errorf("mark unknown: %w", err)
	}
	return s.end(ctx, "mark unknown", 0, id, f, records.Unknown, func(t *tx, now int64) int64 {
		return t.exec(markUnknown, now, id[:], f.Executor[:], f.Epoch, now+micros(retention))
	})
}

// end runs an owner's last write. Zero rows: the caller does not hold the
// record any more, unless the same write landed before under the same fence.
func (s *Store) end(ctx context.Context, op string, weight int, id records.ID, f records.Fence, to records.State, update func(t *tx, now int64) int64) error {
	_, err := decide(ctx, s, op, weight, func(t *tx) (none struct{}, _ error) {
		var found int
		if update(t, t.now()) == 1 || t.one(&found, landed, id[:], f.Executor[:], f.Epoch, string(to)) {
			return none, nil
		}
		return none, records.ErrFenced
	})
	return err
}
