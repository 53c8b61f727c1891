package postgres_test

import (
	"context"
	"errors"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
)

func byHand(r records.Record) records.Intervention {
	return records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "operator", Reason: "looked it up"}
}

// doubtful leaves a record of unknown outcome.
func (a *arena) doubtful() records.Record {
	a.Helper()
	r := a.claim(a.boot().ID, "k")
	a.check(a.store.MarkUnknown(a.Context(), r.ID, r.Fence(), time.Hour))
	return a.record(r.ID)
}

// audited are all events, in order.
func (a *arena) audited() []records.Event {
	a.Helper()
	page, err := a.store.Events(a.Context(), records.EventFilter{Limit: 1000})
	a.check(err)
	return page.Events
}

var operatorRaces = []race{
	// A reconciler claimed it meanwhile and could not tell either: what the
	// operator saw is no more.
	{"AReleaseByHandBehindAReconcilersTryDoesNotLand", []postgres.Mutation{
		{In: postgres.ReleaseByOperator, Guard: "r.epoch = $2::bigint", By: "$2::bigint > 0"},
	}, func(a *arena) bool {
		r, o := a.doubtful(), a.begin()
		o.does(`UPDATE probate.records SET epoch = epoch + 1 WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.ReleaseByOperator(ctx, byHand(r))) })
		return a.record(r.ID).State != records.Unknown || !errors.Is(err, records.ErrFenced)
	}},
	{"AResolutionBehindAReconcilersClaimDoesNotLand", []postgres.Mutation{
		{In: postgres.ResolveByOperator, Guard: "r.epoch = $2::bigint", By: "$2::bigint > 0"},
		without(postgres.ResolveByOperator, "\n   AND r.state IS NOT DISTINCT FROM 'unknown'"),
	}, func(a *arena) bool {
		r, o := a.doubtful(), a.begin()
		o.does(`UPDATE probate.records SET state = 'in_progress', epoch = epoch + 1, expires_at = NULL WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.ResolveByOperator(ctx, byHand(r), done)) })
		return a.record(r.ID).State != records.InProgress || !errors.Is(err, records.ErrFenced)
	}},
	{"AResolutionBehindThePurgeFindsNothing", []postgres.Mutation{
		{In: postgres.ResolveByOperator, Guard: "r.epoch = $2::bigint", By: "$2::bigint > 0"},
	}, func(a *arena) bool {
		// Purged, and claimed anew by somebody who cannot tell either.
		r, o := a.doubtful(), a.begin()
		o.does(`DELETE FROM probate.records WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.ResolveByOperator(ctx, byHand(r), done)) })
		if !errors.Is(err, records.ErrNotFound) {
			return true
		}
		again := a.doubtful()
		_, err = a.store.ResolveByOperator(a.Context(), byHand(r), done)
		return a.record(r.ID).Epoch != again.Epoch || !errors.Is(err, records.ErrFenced)
	}},
	{"AReleaseByHandNeedsADeadExecutor", []postgres.Mutation{
		without(postgres.ReleaseByOperator, " AND d.state IN ('fenced', 'gone')"),
	}, func(a *arena) bool {
		r := a.claim(a.boot().ID, "k")
		return a.store.Drain(a.Context(), r.Executor) != nil || lands(a.store.ReleaseByOperator(a.Context(), byHand(r)))
	}},
	{"AnErasureBehindAClaimLeavesIt", []postgres.Mutation{
		without(postgres.EraseRecords, " AND NOT l.running"),
	}, func(a *arena) bool {
		e := a.boot()
		r, o := a.expired(e, "k"), a.begin()
		o.does(`UPDATE probate.records SET state = 'in_progress', epoch = epoch + 1, expires_at = NULL WHERE id = $1`, r.ID[:])
		var erased records.Erased
		waited, err := o.meets(func(ctx context.Context) (err error) {
			erased, err = a.store.Erase(ctx, records.Erasure{Realm: "realm", Actor: "operator", Reason: "asked to", Limit: 10})
			return err
		})
		a.check(err)
		if !waited {
			a.Error("the erasure did not meet the claim")
		}
		return a.record(r.ID).Key == "" || erased.Running != 1
	}},
	{"AnErasureBehindTheEndOfARecordErasesIt", []postgres.Mutation{
		{In: postgres.EraseRecords, Guard: " WHERE r.id = ANY (ARRAY", By: " WHERE r.state IS DISTINCT FROM 'in_progress' AND r.id = ANY (ARRAY"},
	}, func(a *arena) bool {
		r, o := a.claim(a.boot().ID, "k"), a.begin()
		o.does(`
UPDATE probate.records
   SET state = 'finalized', status = 200, headers = $2, body = 'secret', finalized_at = now(), expires_at = now() + interval '1 day'
 WHERE id = $1`, r.ID[:], records.AppendHeaders(nil, nil))
		var erased records.Erased
		waited, err := o.meets(func(ctx context.Context) (err error) {
			erased, err = a.store.Erase(ctx, records.Erasure{Realm: "realm", Actor: "operator", Reason: "asked to", Limit: 10})
			return err
		})
		a.check(err)
		if !waited {
			a.Error("the erasure did not meet the end")
		}
		return erased.Count != 1 || a.record(r.ID).Response.Body != nil
	}},
	// Numbers are given in the order of commits: who has none yet waits for
	// who has one.
	{"AnEventIsNumberedBehindOneThatHasNotCommitted", []postgres.Mutation{
		{
			In:    postgres.NoteEvents,
			Guard: "UPDATE probate.fleet\n   SET events = events + $1::bigint\nRETURNING events - $1::bigint AS before",
			By:    "SELECT 10 * $1::bigint AS before", // as a sequence would, that somebody else has drawn from
		},
	}, func(a *arena) bool {
		o := a.begin()
		o.does(`
WITH f AS (UPDATE probate.fleet SET events = events + 1 RETURNING events)
INSERT INTO probate.events (n, at, kind, epoch, actor, reason, was, became)
SELECT f.events, now(), 'first', 0, '', '', '', '' FROM f`)
		var seen []records.Event
		waited, err := o.meets(func(ctx context.Context) error {
			err := a.store.Note(ctx, []records.Occurrence{{Kind: "second"}})
			seen = a.audited()
			return err
		})
		a.check(err)
		return !waited || len(seen) != 2 || seen[0].Kind != "first"
	}},
}

func lands(_ records.Record, err error) bool { return err == nil }
