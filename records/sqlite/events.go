package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/probate-dev/probate/records"
)

// Note implements [records.Audit].
func (s *Store) Note(ctx context.Context, all []records.Occurrence) error {
	if err := records.ValidateOccurrences(all); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return s.write(ctx, "note", func(t *tx) error {
		now, events := t.now(), make([]records.Event, len(all))
		for i, o := range all {
			events[i] = o.Event()
			events[i].At = instant(now - micros(o.Ago))
		}
		t.note(events...)
		return nil
	})
}

// note writes events, numbered in the order in which transactions commit:
// writers are one after the other.
func (t *tx) note(events ...records.Event) {
	var before int64
	if len(events) == 0 || !t.one(&before, numberEvents, len(events)) {
		return
	}
	for i, e := range events {
		var record, executor any
		if e.Record != (records.ID{}) {
			record = e.Record[:]
		}
		if e.Executor != (records.ExecutorID{}) {
			executor = e.Executor[:]
		}
		t.exec(noteEvent, before+int64(i)+1, e.At.UnixMicro(), string(e.Kind), record, e.Epoch, executor,
			e.Actor, e.Reason, e.Before, e.After)
	}
}

type eventRow struct {
	N        int64  `db:"n"`
	At       int64  `db:"at"`
	Kind     string `db:"kind"`
	Record   []byte `db:"record_id"`
	Epoch    int64  `db:"epoch"`
	Executor []byte `db:"executor_id"`
	Actor    string `db:"actor"`
	Reason   string `db:"reason"`
	Was      string `db:"was"`
	Became   string `db:"became"`
}

func (w eventRow) event() (records.Event, error) {
	e := records.Event{
		At: instant(w.At), Kind: records.EventKind(w.Kind), Epoch: w.Epoch,
		Actor: w.Actor, Reason: w.Reason, Before: w.Was, After: w.Became,
	}
	if w.Record != nil && !fill(e.Record[:], w.Record) || w.Executor != nil && !fill(e.Executor[:], w.Executor) {
		return records.Event{}, fmt.Errorf("read event %d: %w", w.N, records.ErrCorrupt)
	}
	return e, nil
}

// Events implements [records.Audit]. Like List it first finds where the page
// must end.
func (s *Store) Events(ctx context.Context, f records.EventFilter) (records.EventPage, error) {
	if err := f.Validate(); err != nil {
		return records.EventPage{}, fmt.Errorf("read events: %w", err)
	}
	after, err := f.Cursor()
	if err != nil {
		return records.EventPage{}, fmt.Errorf("read events: %w", err)
	}
	page, last := records.EventPage{}, int64(math.MaxInt64)
	way := eventsWay(f)
	bound, err := readOne[int64](ctx, s, "read events", way.bound, append([]any{after, s.listWindow}, way.args...)...)
	switch {
	case err == nil:
		page.More, last = true, bound
	case !errors.Is(err, records.ErrNotFound):
		return records.EventPage{}, err
	}
	rows, err := readAll[eventRow](ctx, s, "read events", way.read, after, last,
		sql.Null[[]byte]{V: f.Record[:], Valid: f.Record != records.ID{}},
		sql.Null[[]byte]{V: f.Executor[:], Valid: f.Executor != records.ExecutorID{}},
		sql.NullString{String: string(f.Kind), Valid: f.Kind != ""}, f.Limit+1)
	if err != nil {
		return records.EventPage{}, err
	}
	if len(rows) > f.Limit {
		rows = rows[:f.Limit]
		page.More, last = true, rows[f.Limit-1].N
	}
	for _, row := range rows {
		e, err := row.event()
		if err != nil {
			return records.EventPage{}, err
		}
		page.Events = append(page.Events, e)
		after = row.N
	}
	if page.More {
		after = last
	}
	page.Next = strconv.FormatInt(after, 10)
	return page, nil
}

// eventWay is how a page comes to its events.
type eventWay struct {
	bound, read string
	args        []any // of bound, besides where to begin and how many
}

func eventsWay(f records.EventFilter) eventWay {
	switch {
	case f.Record != records.ID{}:
		return eventWay{eventsBoundOfRecord, eventsOfRecord, []any{f.Record[:]}}
	case f.Executor != records.ExecutorID{}:
		return eventWay{eventsBoundOfExecutor, eventsOfExecutor, []any{f.Executor[:]}}
	}
	return eventWay{eventsBound, readEvents, nil}
}

// PurgeEvents implements [records.Audit].
func (s *Store) PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := decide(ctx, s, "purge events", 0, func(t *tx) (int64, error) {
		return t.exec(purgeEvents, t.now()-micros(age), max(0, limit)), nil
	})
	return int(n), err
}
