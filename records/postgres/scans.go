package postgres

import (
	"context"
	"time"

	"github.com/probate-dev/probate/records"
)

// examinedRows bounds how many rows one page of a listing looks at.
const examinedRows = 10_000

// InProgress reads the records that an executor has in progress.
func (s *Store) InProgress(ctx context.Context, id records.ExecutorID, after records.ID, limit int) ([]records.Record, error) {
	return s.scan(ctx, "in progress", inProgress, id.String(), after[:], max(0, limit))
}

// Orphans reads in-progress records of terminal executors.
func (s *Store) Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error) {
	return s.scan(ctx, "orphans", orphans, after[:], max(0, limit))
}

func (s *Store) scan(ctx context.Context, name, text string, args ...any) ([]records.Record, error) {
	return call(ctx, s, func(ctx context.Context) ([]records.Record, error) {
		var rows []recordRow
		err := s.data.attempt(ctx, name, func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, text, args...)
		})
		if err != nil {
			return nil, err
		}
		found := make([]records.Record, len(rows))
		for i, row := range rows {
			if found[i], err = row.record(); err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

// listRow is a row of a listing, with how far the listing looked.
type listRow struct {
	Examined int    `db:"examined"`
	Last     []byte `db:"last"`
	recordRow
}

// List reads a page for an operator.
func (s *Store) List(ctx context.Context, f records.Filter) (records.Page, error) {
	if err := f.Validate(); err != nil {
		return records.Page{}, err
	}
	return call(ctx, s, func(ctx context.Context) (records.Page, error) {
		var rows []listRow
		err := s.data.attempt(ctx, "list", func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, listText(f), f.After[:], examinedRows, f.Limit+1,
				nullableBytes(f.Realm), nullableBytes(f.Key), nullableBytes(f.Operation),
				nullable(string(f.State), f.State != ""), nullable(f.Executor.String(), f.Executor != records.ExecutorID{}),
				nullable(f.OlderThan.Microseconds(), f.OlderThan > 0))
		})
		if err != nil {
			return records.Page{}, err
		}
		return page(rows, f.Limit)
	})
}

// listText chooses the way to the rows.
func listText(f records.Filter) string {
	way := listAll
	switch f.State {
	case records.Unknown:
		way = listUnknown
	case records.InProgress:
		way = listInProgress
	case records.Finalized, records.Released:
	}
	return listHead + way + listTail
}

// page makes a page of what was found. It ends at its last row if more were
// found than fit, else at the last row that was looked at.
func page(rows []listRow, limit int) (records.Page, error) {
	var p records.Page
	for _, row := range rows {
		if !row.found() {
			continue
		}
		if len(p.Records) == limit {
			p.Next, p.More = p.Records[limit-1].ID, true
			return p, nil
		}
		rec, err := row.record()
		if err != nil {
			return records.Page{}, err
		}
		p.Records = append(p.Records, rec)
	}
	if rows[0].Examined == examinedRows {
		p.More = true
		copy(p.Next[:], rows[0].Last)
	}
	return p, nil
}

// purgePiece is how many rows one statement deletes: few enough to hold nobody
// up, whose commit falls behind it.
const purgePiece = 100

// Purge deletes records whose retention and grace have passed. It goes piece by
// piece, each a statement of its own, and rests after each for as long as it
// took, so that it is never more than half of what the server does.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	caller := ctx
	return call(ctx, s, func(ctx context.Context) (int, error) {
		purged := 0
		for purged < limit && caller.Err() == nil {
			piece, began := min(purgePiece, limit-purged), time.Now()
			n := 0
			err := s.data.attempt(ctx, "purge", func(ctx context.Context) (err error) {
				n, err = s.data.changes(ctx, purge, s.config.Grace.Microseconds(), piece)
				return err
			})
			purged += n
			if err != nil || n < piece {
				return purged, err
			}
			<-time.After(time.Since(began))
		}
		return purged, nil
	})
}

func nullable(value any, valid bool) any {
	if !valid {
		return nil
	}
	return value
}

func nullableBytes(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
