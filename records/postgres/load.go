package postgres

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// Load reads a record with its executor.
func (s *Store) Load(ctx context.Context, id records.ID) (records.Held, error) {
	held, err := s.loading.Do(ctx, id)
	return held, queued(err)
}

func (s *Store) loadBatch(ctx context.Context, p *pool, batch []records.ID) []groupcommit.Result[records.Held] {
	results := make([]groupcommit.Result[records.Held], len(batch))
	rows, err := s.loadRows(ctx, p, len(batch), func(n int) (records.ExecutorID, records.ID) {
		return records.ExecutorID{}, batch[n]
	})
	for i := range results {
		switch {
		case err != nil:
			results[i].Err = err
		case !rows[i].found():
			results[i].Err = fmt.Errorf("load: %w", records.ErrNotFound)
		default:
			results[i].Value, results[i].Err = rows[i].held()
		}
	}
	return results
}

// loadRows reads n records, each with its executor and the state of the
// executor that asks, and returns a row for each, found or not. What several
// ask for is read once and shared.
func (s *Store) loadRows(ctx context.Context, p *pool, n int, asked func(int) (asker records.ExecutorID, id records.ID)) ([]heldRow, error) {
	type question struct {
		asker records.ExecutorID
		id    records.ID
	}
	place := make(map[question]int, n)
	at := make([]int, n)
	askers, ids := newArray(oid.T_uuid, n, 16), newArray(oid.T_bytea, n, 32)
	for i := range at {
		asker, id := asked(i)
		q := question{asker, id}
		if _, ok := place[q]; !ok {
			place[q] = len(place)
			askers.add(asker[:])
			ids.add(id[:])
		}
		at[i] = place[q]
	}
	found := make([]heldRow, len(place))
	err := p.batch(ctx, "load", n, func(ctx context.Context) error {
		return p.reads(ctx, func(rows *sqlx.Rows) error {
			var row heldRow
			if err := rows.Scan(row.targets()...); err != nil {
				return err
			}
			found[row.Asked-1] = row
			return nil
		}, loadMany, s.config.Grace.Microseconds(), askers, ids)
	})
	if err != nil {
		return nil, err
	}
	inOrder := make([]heldRow, n)
	for i := range inOrder {
		inOrder[i] = found[at[i]]
	}
	return inOrder, nil
}
