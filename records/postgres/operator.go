package postgres

import (
	"context"
	"fmt"

	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
)

// ReleaseByOperator frees a key at a person's word.
func (s *Store) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	if err := i.Validate(); err != nil {
		return records.Record{}, err
	}
	mark := i.Mark(nil)
	return s.intervene(ctx, intervention{
		Intervention: i, verb: "release by operator", kind: records.EventReleased, to: records.Released, mark: mark,
		text: releaseByOperator,
		args: []any{i.ID[:], i.Epoch, mark[:]},
	})
}

// ResolveByOperator gives an unknown record the outcome a person found out.
func (s *Store) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	if err := i.Validate(); err != nil {
		return records.Record{}, err
	}
	if err := o.Validate(); err != nil {
		return records.Record{}, err
	}
	mark := i.Mark(&o)
	return s.intervene(ctx, intervention{
		Intervention: i, verb: "resolve by operator", kind: records.EventResolved, to: records.Finalized, mark: mark,
		text: resolveByOperator,
		args: []any{
			i.ID[:], i.Epoch, mark[:],
			o.Response.Status, records.AppendHeaders(nil, o.Response.Headers), o.Response.Body, o.Retention.Microseconds(),
			records.AppendHeaders(nil, nil),
		},
	})
}

// intervention is what an operator does to one record.
type intervention struct {
	records.Intervention
	verb string
	kind records.EventKind
	to   records.State
	mark records.Token
	text string
	args []any
}

// intervenedRow is a record as it became, and what it was.
type intervenedRow struct {
	Was string `db:"was"`
	recordRow
}

// intervene changes a record and notes it. If nothing changed, the row says
// why: it is there as this call would leave it, by a reply that was lost; or
// it is not what the person saw.
func (s *Store) intervene(ctx context.Context, i intervention) (records.Record, error) {
	return call(ctx, s, func(ctx context.Context) (r records.Record, err error) {
		err = s.data.attempt(ctx, i.verb, func(ctx context.Context) error {
			return s.data.transact(ctx, func(ctx context.Context, t transaction) error {
				r, err = t.intervene(ctx, i)
				return err
			})
		})
		if err != nil {
			return records.Record{}, err // what r holds was rolled back
		}
		return r, nil
	})
}

func (t transaction) intervene(ctx context.Context, i intervention) (records.Record, error) {
	var changed []intervenedRow
	if err := t.selects(ctx, &changed, i.text, i.args...); err != nil {
		return records.Record{}, err
	}
	if len(changed) > 0 {
		r, err := changed[0].record()
		if err != nil {
			return records.Record{}, err
		}
		return r, t.note(ctx, records.Event{
			Kind: i.kind, Record: r.ID, Epoch: r.Epoch, Executor: r.Executor, Actor: i.Actor, Reason: i.Reason,
			Before: changed[0].Was, After: string(r.State),
		})
	}
	var stands []recordRow
	if err := t.selects(ctx, &stands, selectRecord, i.ID[:]); err != nil {
		return records.Record{}, err
	}
	if len(stands) == 0 {
		return records.Record{}, records.ErrNotFound
	}
	r, err := stands[0].record()
	if err == nil && (r.State != i.to || r.Epoch != i.Epoch+1 || r.Attempt != i.mark) {
		return records.Record{}, records.ErrFenced
	}
	return r, err
}

// erasePiece is how many records one transaction blanks: few enough that a
// fence, which queues behind it, hardly waits.
const erasePiece = 500

// realmRow is a record of a realm, with how far the page looked. Id and key are
// null where there was none.
type realmRow struct {
	Examined int    `db:"examined"`
	Last     []byte `db:"last"`
	ID       []byte `db:"id"`
	Key      []byte `db:"key"`
}

// Erase forgets what a page of a principal's records says. Whose they are is
// found out by their ids; only then are they locked. One that is claimed anew
// in between is the same principal's, and in progress.
func (s *Store) Erase(ctx context.Context, e records.Erasure) (records.Erased, error) {
	if err := e.Validate(); err != nil {
		return records.Erased{}, err
	}
	return call(ctx, s, func(ctx context.Context) (done records.Erased, err error) {
		var rows []realmRow
		err = s.data.attempt(ctx, "examine realm", func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, examineRealm, e.After[:], []byte(e.Realm), e.Limit)
		})
		if err != nil {
			return records.Erased{}, err
		}
		page, theirs := erasurePage(e, rows)
		err = s.data.attempt(ctx, "erase", func(ctx context.Context) error {
			return s.data.transact(ctx, func(ctx context.Context, t transaction) error {
				done, err = t.erase(ctx, e, page, theirs)
				return err
			})
		})
		if err != nil {
			return records.Erased{}, err
		}
		return done, nil
	})
}

// erasurePage finds the principal's records among those of a realm, at most a
// piece of them, and where the page ends.
func erasurePage(e records.Erasure, rows []realmRow) (page records.Erased, theirs [][]byte) {
	page.More = rows[0].Examined == e.Limit
	copy(page.Next[:], rows[0].Last)
	for _, row := range rows {
		var id records.ID
		if !fill(id[:], row.ID) || !e.Of(id, string(row.Key)) {
			continue
		}
		if len(theirs) == erasePiece {
			page.More = true
			copy(page.Next[:], theirs[erasePiece-1])
			break
		}
		theirs = append(theirs, row.ID)
	}
	if !page.More {
		page.Next = records.ID{}
	}
	return page, theirs
}

func (t transaction) erase(ctx context.Context, e records.Erasure, done records.Erased, theirs [][]byte) (records.Erased, error) {
	if len(theirs) > 0 {
		ids := newArray(oid.T_bytea, len(theirs), 32)
		for _, id := range theirs {
			ids.add(id)
		}
		var counts []struct {
			Erased  int `db:"erased"`
			Running int `db:"running"`
		}
		if err := t.selects(ctx, &counts, eraseRecords, ids, records.AppendHeaders(nil, nil)); err != nil {
			return done, err
		}
		done.Count, done.Running = counts[0].Erased, counts[0].Running
	}
	if done.Count > 0 {
		if _, err := t.executes(ctx, countErasure); err != nil {
			return done, err
		}
	}
	if !e.Notable(done) {
		return done, nil
	}
	err := t.note(ctx, records.Event{Kind: records.EventErased, Actor: e.Actor, Reason: e.Note(done)})
	if err != nil {
		return done, fmt.Errorf("note: %w", err)
	}
	return done, nil
}
