package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
)

// Note writes down what a node saw.
func (s *Store) Note(ctx context.Context, all []records.Occurrence) error {
	if err := records.ValidateOccurrences(all); err != nil {
		return err
	}
	w := newEvents(len(all))
	for _, o := range all {
		w.add(o.Ago, o.Event())
	}
	return do(ctx, s, func(ctx context.Context) error {
		if len(all) == 0 {
			return nil
		}
		return s.control.attempt(ctx, "note", func(ctx context.Context) error {
			_, err := s.control.executes(ctx, noteEvents, w.arguments()...)
			return err
		})
	})
}

// note writes an event that belongs to a transaction.
func (t transaction) note(ctx context.Context, e records.Event) error {
	w := newEvents(1)
	w.add(0, e)
	_, err := t.executes(ctx, noteEvents, w.arguments()...)
	return err
}

// events are the arguments of noteEvents, a column each.
type events struct {
	ago, kind, record, epoch, executor, actor, reason, was, became *array
}

func newEvents(n int) events {
	return events{
		ago: newArray(oid.T_int8, n, 8), kind: newArray(oid.T_text, n, 12), record: newArray(oid.T_bytea, n, 32),
		epoch: newArray(oid.T_int8, n, 8), executor: newArray(oid.T_uuid, n, 16), actor: newArray(oid.T_text, n, 8),
		reason: newArray(oid.T_text, n, 64), was: newArray(oid.T_text, n, 12), became: newArray(oid.T_text, n, 12),
	}
}

func (w events) add(ago time.Duration, e records.Event) {
	w.ago.addInt(ago.Microseconds())
	w.kind.addString(string(e.Kind))
	if e.Record == (records.ID{}) {
		w.record.addNull()
	} else {
		w.record.add(e.Record[:])
	}
	w.epoch.addInt(e.Epoch)
	if e.Executor == (records.ExecutorID{}) {
		w.executor.addNull()
	} else {
		w.executor.add(e.Executor[:])
	}
	w.actor.addString(e.Actor)
	w.reason.addString(e.Reason)
	w.was.addString(e.Before)
	w.became.addString(e.After)
}

func (w events) arguments() []any {
	return []any{w.ago.n, w.ago, w.kind, w.record, w.epoch, w.executor, w.actor, w.reason, w.was, w.became}
}

// eventRow is an event as it is read, with how far the page looked. All but
// that is null where nothing matched.
type eventRow struct {
	Examined int            `db:"examined"`
	Last     int64          `db:"last"`
	N        sql.NullInt64  `db:"n"`
	At       sql.NullTime   `db:"at"`
	Kind     sql.NullString `db:"kind"`
	Record   []byte         `db:"record_id"`
	Epoch    sql.NullInt64  `db:"epoch"`
	Executor uuid           `db:"executor_id"`
	Actor    sql.NullString `db:"actor"`
	Reason   sql.NullString `db:"reason"`
	Was      sql.NullString `db:"was"`
	Became   sql.NullString `db:"became"`
}

func (r eventRow) event() (records.Event, error) {
	e := records.Event{
		At: utc(r.At), Kind: records.EventKind(r.Kind.String), Epoch: r.Epoch.Int64, Executor: records.ExecutorID(r.Executor),
		Actor: r.Actor.String, Reason: r.Reason.String, Before: r.Was.String, After: r.Became.String,
	}
	if r.Record != nil && !fill(e.Record[:], r.Record) {
		return records.Event{}, fmt.Errorf("read event %d: %w", r.N.Int64, records.ErrCorrupt)
	}
	return e, nil
}

// Events reads a page of the audit.
func (s *Store) Events(ctx context.Context, f records.EventFilter) (records.EventPage, error) {
	if err := f.Validate(); err != nil {
		return records.EventPage{}, err
	}
	after, err := f.Cursor()
	if err != nil {
		return records.EventPage{}, err
	}
	return call(ctx, s, func(ctx context.Context) (records.EventPage, error) {
		var rows []eventRow
		err := s.data.attempt(ctx, "events", func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, eventsText(f), after, examinedRows, f.Limit+1,
				nullable(f.Record[:], f.Record != records.ID{}),
				nullable(f.Executor.String(), f.Executor != records.ExecutorID{}),
				nullable(string(f.Kind), f.Kind != ""))
		})
		if err != nil {
			return records.EventPage{}, err
		}
		return eventPage(rows, f.Limit)
	})
}

// eventsText chooses the way to the events.
func eventsText(f records.EventFilter) string {
	way := ""
	switch {
	case f.Record != records.ID{}:
		way = eventsOfRecord
	case f.Executor != records.ExecutorID{}:
		way = eventsOfExecutor
	}
	return eventsHead + way + eventsTail
}

// eventPage makes a page of what was found. It ends at its last event if more
// were found than fit, else at the last that was looked at.
func eventPage(rows []eventRow, limit int) (records.EventPage, error) {
	var p records.EventPage
	last := int64(0)
	for _, row := range rows {
		if !row.N.Valid {
			continue
		}
		if len(p.Events) == limit {
			p.Next, p.More = strconv.FormatInt(last, 10), true
			return p, nil
		}
		e, err := row.event()
		if err != nil {
			return records.EventPage{}, err
		}
		p.Events, last = append(p.Events, e), row.N.Int64
	}
	p.Next, p.More = strconv.FormatInt(rows[0].Last, 10), rows[0].Examined == examinedRows
	return p, nil
}

// PurgeEvents deletes old events.
func (s *Store) PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	return call(ctx, s, func(ctx context.Context) (n int, err error) {
		err = s.data.attempt(ctx, "purge events", func(ctx context.Context) error {
			n, err = s.data.changes(ctx, purgeEvents, age.Microseconds(), max(0, limit))
			return err
		})
		return n, err
	})
}
