package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// ReleaseByOperator implements [records.Interventions].
func (s *Store) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	if err := i.Validate(); err != nil {
		return records.Record{}, fmt.Errorf("release by operator: %w", err)
	}
	mark := i.Mark(nil)
	return s.intervene(ctx, "release by operator", i, records.EventReleased, records.Released, mark, func(t *tx, now int64) int64 {
		return t.exec(releaseByOperator, now, i.ID[:], i.Epoch, mark[:])
	})
}

// ResolveByOperator implements [records.Interventions].
func (s *Store) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	if err := errors.Join(i.Validate(), o.Validate()); err != nil {
		return records.Record{}, fmt.Errorf("resolve by operator: %w", err)
	}
	mark, headers := i.Mark(&o), records.AppendHeaders(nil, o.Response.Headers)
	return s.intervene(ctx, "resolve by operator", i, records.EventResolved, records.Finalized, mark, func(t *tx, now int64) int64 {
		return t.exec(resolveByOperator, now, i.ID[:], i.Epoch, mark[:], now+micros(o.Retention),
			o.Response.Status, headers, o.Response.Body, records.AppendHeaders(nil, nil))
	})
}

// intervene changes a record and notes it. If nothing changed, the row says
// why: it is there as this call would leave it, by a reply that was lost; or
// it is not what the person saw.
func (s *Store) intervene(ctx context.Context, op string, i records.Intervention, kind records.EventKind, to records.State,
	mark records.Token, update func(t *tx, now int64) int64,
) (records.Record, error) {
	return decide(ctx, s, op, 0, func(t *tx) (records.Record, error) {
		now := t.now()
		before, err := t.load(i.ID, now)
		if err != nil {
			return records.Record{}, err
		}
		landed := update(t, now) == 1
		held, err := t.load(i.ID, now)
		r := held.Record
		switch {
		case err != nil:
			return records.Record{}, err
		case landed:
			t.note(records.Event{
				At: instant(now), Kind: kind, Record: r.ID, Epoch: r.Epoch, Executor: r.Executor, Actor: i.Actor, Reason: i.Reason,
				Before: string(before.Record.State), After: string(r.State),
			})
		case r.State != to || r.Epoch != i.Epoch+1 || r.Attempt != mark:
			return records.Record{}, records.ErrFenced
		}
		return r, nil
	})
}

// erasePiece is how many records one transaction blanks, so that heartbeats
// need not wait for a large erasure.
const erasePiece = 250

// Erase implements [records.Interventions]. Whose records they are is found out
// by their ids, before anybody waits for it. One that is claimed anew in between
// is the same principal's, and in progress.
func (s *Store) Erase(ctx context.Context, e records.Erasure) (records.Erased, error) {
	if err := e.Validate(); err != nil {
		return records.Erased{}, fmt.Errorf("erase: %w", err)
	}
	page, theirs, err := s.erasurePage(ctx, e)
	if err != nil {
		return records.Erased{}, err
	}
	return decide(ctx, s, "erase", 0, func(t *tx) (records.Erased, error) { return t.erase(e, page, theirs), nil })
}

// erasurePage finds the principal's records on a page, at most a piece of them,
// and where the page ends.
func (s *Store) erasurePage(ctx context.Context, e records.Erasure) (page records.Erased, theirs []records.ID, err error) {
	last := lastID
	bound, err := readOne[[]byte](ctx, s, "erase", listBound, e.After[:], e.Limit)
	switch {
	case err == nil:
		page.More = fill(last[:], bound)
	case !errors.Is(err, records.ErrNotFound):
		return page, nil, err
	}
	rows, err := readAll[realmRow](ctx, s, "erase", examineRealm, e.After[:], last[:], []byte(e.Realm))
	if err != nil {
		return page, nil, err
	}
	for _, row := range rows {
		var id records.ID
		if !fill(id[:], row.ID) || !e.Of(id, string(row.Key)) {
			continue
		}
		if len(theirs) == erasePiece {
			page.More, last = true, theirs[erasePiece-1]
			break
		}
		theirs = append(theirs, id)
	}
	if page.More {
		page.Next = last
	}
	return page, theirs, nil
}

type realmRow struct {
	ID  []byte `db:"id"`
	Key []byte `db:"key"`
}

func (t *tx) erase(e records.Erasure, done records.Erased, theirs []records.ID) records.Erased {
	none := records.AppendHeaders(nil, nil)
	for _, id := range theirs {
		var found int
		if t.exec(eraseRecord, id[:], none) == 1 {
			done.Count++
		} else if t.one(&found, isInProgress, id[:]) {
			done.Running++
		}
	}
	if done.Count > 0 {
		t.exec(countErasure)
	}
	if e.Notable(done) {
		t.note(records.Event{At: instant(t.now()), Kind: records.EventErased, Actor: e.Actor, Reason: e.Note(done)})
	}
	return done
}
