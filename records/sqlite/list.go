package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// defaultListWindow is how many rows a page examines at most: a few
// milliseconds.
const defaultListWindow = 5000

// lastID is the largest id there can be.
var lastID = records.ID(bytes.Repeat([]byte{0xff}, len(records.ID{})))

// InProgress implements [records.Records].
func (s *Store) InProgress(ctx context.Context, id records.ExecutorID, after records.ID, limit int) ([]records.Record, error) {
	rows, err := readAll[recordRow](ctx, s, "list records in progress", inProgress, id[:], after[:], max(limit, 0))
	if err != nil {
		return nil, err
	}
	return toRecords(rows)
}

// Orphans implements [records.Records].
func (s *Store) Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error) {
	rows, err := readAll[recordRow](ctx, s, "list orphans", orphans, after[:], max(limit, 0))
	if err != nil {
		return nil, err
	}
	return toRecords(rows)
}

// List implements [records.Records]. It first finds where the page must end,
// so that a filter which fits nothing does not read the whole table.
func (s *Store) List(ctx context.Context, f records.Filter) (records.Page, error) {
	if err := f.Validate(); err != nil {
		return records.Page{}, fmt.Errorf("list records: %w", err)
	}
	page := records.Page{Next: lastID}
	bound, err := readOne[[]byte](ctx, s, "list records", listBound, f.After[:], s.listWindow)
	switch {
	case err == nil:
		page.More = fill(page.Next[:], bound)
	case !errors.Is(err, records.ErrNotFound):
		return records.Page{}, err
	}
	rows, err := readAll[recordRow](ctx, s, "list records", list, append([]any{f.After[:], page.Next[:]}, s.filters(f)...)...)
	if err != nil {
		return records.Page{}, err
	}
	more := len(rows) > f.Limit
	if page.Records, err = toRecords(rows[:min(len(rows), f.Limit)]); err != nil {
		return records.Page{}, fmt.Errorf("list records: %w", err)
	}
	if more {
		page.More, page.Next = true, page.Records[f.Limit-1].ID
	} else if !page.More {
		page.Next = records.ID{}
	}
	return page, nil
}

// filters are the parameters of list from the third on; null does not filter.
func (s *Store) filters(f records.Filter) []any {
	blob := func(v *string) any {
		if v == nil {
			return nil
		}
		return []byte(*v)
	}
	args := []any{blob(f.Realm), blob(f.Key), blob(f.Operation), nil, nil, nil, f.Limit + 1}
	if f.State != "" {
		args[3] = string(f.State)
	}
	if f.Executor != (records.ExecutorID{}) {
		args[4] = f.Executor[:]
	}
	if f.OlderThan > 0 {
		args[5] = s.config.Clock().UnixMicro() - micros(f.OlderThan)
	}
	return args
}

// purgeChunk bounds one transaction, so that heartbeats need not wait for a
// large purge.
const purgeChunk = 250

// Purge implements [records.Records].
func (s *Store) Purge(ctx context.Context, limit int) (deleted int, err error) {
	for deleted < limit {
		chunk := min(limit-deleted, purgeChunk)
		n, err := decide(ctx, s, "purge", 0, func(t *tx) (int64, error) {
			return t.exec(purge, t.now()-micros(t.config.Grace), chunk), nil
		})
		deleted += int(n)
		if err != nil || int(n) < chunk {
			return deleted, err
		}
	}
	return deleted, nil
}
