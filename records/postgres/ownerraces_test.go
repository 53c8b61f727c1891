package postgres_test

import (
	"context"
	"errors"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
)

var done = records.Outcome{Response: records.Response{Status: 201, Body: []byte("done")}, Retention: time.Hour}

// takesOver moves a record to another executor, in a transaction that has not
// committed.
func (o *other) takesOver(r records.Record, by records.Executor) {
	o.Helper()
	o.does(`UPDATE probate.records SET executor_id = $2, epoch = epoch + 1 WHERE id = $1`, r.ID[:], by.ID.String())
}

// byStateOnly are owner's writes that look only at the state.
var byStateOnly = []postgres.Mutation{
	{In: postgres.SettleOne, Guard: "r.executor_id = $2::uuid AND r.epoch = $3::bigint", By: "$2::uuid IS NOT NULL AND $3::bigint > 0"},
	without(postgres.SettleMany, "o.executor_id = u.executor AND o.epoch = u.epoch\n                        AND "),
	without(postgres.SettleMany, "r.executor_id = excluded.executor_id AND r.epoch = excluded.epoch AND "),
}

var ownerRaces = []race{
	{"AnOvertakenOwnerFinalizesNothing", byStateOnly, func(a *arena) bool {
		r, next, o := a.claim(a.boot().ID, "k"), a.boot(), a.begin()
		o.takesOver(r, next)
		_, err := o.meets(func(ctx context.Context) error { return a.store.Finalize(ctx, r.ID, r.Fence(), done) })
		return a.record(r.ID).State != records.InProgress || !errors.Is(err, records.ErrFenced)
	}},
	{"AnOvertakenOwnerFinalizesNothingInABatch", byStateOnly, func(a *arena) bool {
		e := a.boot()
		r, mate, next, o := a.claim(e.ID, "k"), a.claim(e.ID, "l"), a.boot(), a.begin()
		o.takesOver(r, next)
		var errs []error
		_, err := o.meets(func(context.Context) error {
			errs = a.store.FinalizeBatch([]records.Record{r, mate}, done)
			return nil
		})
		a.check(err)
		a.check(errs[1])
		if got := a.record(mate.ID).State; got != records.Finalized {
			a.Errorf("the other record of the batch is %s", got)
		}
		return a.record(r.ID).State != records.InProgress || !errors.Is(errs[0], records.ErrFenced)
	}},
	{"BatchesOfFinalizesLockInOneOrder", []postgres.Mutation{
		{In: postgres.SettleMany, Guard: "ORDER BY s.id", By: "ORDER BY s.id DESC"},
	}, func(a *arena) bool {
		e := a.boot()
		first, second := a.twoKeys()
		held := []records.Record{a.claim(e.ID, second), a.claim(e.ID, first)}
		return oppositeOrder(a, first, second, func(context.Context) error {
			return errors.Join(a.store.FinalizeBatch(held, done)...)
		})
	}},
	{"ABatchInsertsNoRecordThatIsGone", []postgres.Mutation{without(postgres.SettleMany, "FOR UPDATE")}, func(a *arena) bool {
		e := a.boot()
		r, mate, o := a.claim(e.ID, "k"), a.claim(e.ID, "l"), a.begin()
		// Nothing deletes a record in progress. If something did, a write that
		// is an INSERT must not bring it back.
		o.does(`DELETE FROM probate.records WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(context.Context) error {
			a.store.FinalizeBatch([]records.Record{r, mate}, done)
			return nil
		})
		a.check(err)
		_, err = a.store.Load(a.Context(), r.ID)
		return !errors.Is(err, records.ErrNotFound)
	}},
	{"OfTwoTakeOversOneLands", []postgres.Mutation{
		{In: postgres.TakeOver, Guard: "r.executor_id = $4::uuid AND r.epoch = $5::bigint", By: "$4::uuid IS NOT NULL AND $5::bigint > 0"},
	}, func(a *arena) bool {
		r, winner, loser, o := a.claim(a.boot().ID, "k"), a.boot(), a.boot(), a.begin()
		o.takesOver(r, winner)
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.TakeOver(ctx, signedTakeOver(r, loser))) })
		return a.record(r.ID).Executor != winner.ID || !errors.Is(err, records.ErrFenced)
	}},
	{"OfATakeOverAndTheOwnersFinalizeOneLands", []postgres.Mutation{
		without(postgres.TakeOver, "\n   AND r.state IS NOT DISTINCT FROM 'in_progress'"),
	}, func(a *arena) bool {
		r, taker, o := a.claim(a.boot().ID, "k"), a.boot(), a.begin()
		o.does(`UPDATE probate.records SET state = 'finalized', status = 201, headers = '\x00', expires_at = now() + interval '1 hour' WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.TakeOver(ctx, signedTakeOver(r, taker))) })
		return a.record(r.ID).Epoch != r.Epoch || !errors.Is(err, records.ErrFenced)
	}},
	{"ATakeOverNeedsAnActiveTaker", []postgres.Mutation{without(postgres.TakeOver, " AND e.state = 'active'")}, func(a *arena) bool {
		r, taker := a.claim(a.boot().ID, "k"), a.boot()
		a.check(a.store.Drain(a.Context(), taker.ID))
		_, err := a.store.TakeOver(a.Context(), signedTakeOver(r, taker))
		return !errors.Is(err, records.ErrNotActive)
	}},
	{"ATakeOverNeedsADeadOwner", []postgres.Mutation{
		{In: postgres.TakeOver, Guard: "d.state IN ('fenced', 'gone')", By: "true"},
	}, func(a *arena) bool {
		r, taker := a.claim(a.boot().ID, "k"), a.boot()
		t := signedTakeOver(r, taker)
		t.SignedNotRunning = false
		_, err := a.store.TakeOver(a.Context(), t)
		return !errors.Is(err, records.ErrFenced)
	}},
	{"OfTwoReconcilersOneClaims", []postgres.Mutation{
		without(postgres.ClaimUnknown, "\n   AND r.state IS NOT DISTINCT FROM 'unknown'"),
		{In: postgres.ClaimUnknown, Guard: "r.epoch = $4::bigint", By: "$4::bigint > 0"},
	}, func(a *arena) bool {
		r, winner, loser, o := a.claim(a.boot().ID, "k"), a.boot(), a.boot(), a.begin()
		a.check(a.store.MarkUnknown(a.Context(), r.ID, r.Fence(), time.Hour))
		o.does(`UPDATE probate.records SET state = 'in_progress', executor_id = $2, epoch = epoch + 1, expires_at = NULL WHERE id = $1`, r.ID[:], winner.ID.String())
		_, err := o.meets(func(ctx context.Context) error {
			return errOf(a.store.ClaimUnknown(ctx, records.UnknownClaim{ID: r.ID, Epoch: r.Epoch, By: loser.ID, Attempt: records.NewToken()}))
		})
		return a.record(r.ID).Executor != winner.ID || !errors.Is(err, records.ErrFenced)
	}},
}

func signedTakeOver(r records.Record, by records.Executor) records.TakeOver {
	return records.TakeOver{ID: r.ID, From: r.Fence(), By: by.ID, Attempt: records.NewToken(), SignedNotRunning: true}
}

// expired leaves a record that is past its retention and its grace.
func (a *arena) expired(by records.Executor, key string) records.Record {
	a.Helper()
	r := a.claim(by.ID, key)
	a.check(a.store.Finalize(a.Context(), r.ID, r.Fence(), done))
	a.exec(`UPDATE probate.records SET expires_at = now() - interval '1 hour' WHERE id = $1`, r.ID[:])
	return r
}

var purgeRaces = []race{
	// Either guard is enough: the lock inside, or the repeat outside.
	{"APurgeSparesAFreshClaim", []postgres.Mutation{
		without(postgres.Purge, "FOR UPDATE SKIP LOCKED"),
		without(postgres.Purge, `
   AND r.state IS DISTINCT FROM 'in_progress'
   AND r.expires_at < clock_timestamp() - $1::bigint * interval '1 microsecond'`),
	}, func(a *arena) bool {
		e := a.boot()
		r, o := a.expired(e, "k"), a.begin()
		o.does(`UPDATE probate.records SET state = 'in_progress', epoch = epoch + 1, expires_at = NULL WHERE id = $1`, r.ID[:])
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Purge(ctx, 10)) })
		a.check(err)
		_, err = a.store.Load(a.Context(), r.ID)
		return errors.Is(err, records.ErrNotFound)
	}},
	{"APurgeWaitsForNobody", []postgres.Mutation{without(postgres.Purge, "SKIP LOCKED")}, func(a *arena) bool {
		e := a.boot()
		r, mate, o := a.expired(e, "k"), a.expired(e, "l"), a.begin()
		o.does(`SELECT 1 FROM probate.records WHERE id = $1 FOR UPDATE`, r.ID[:])
		waited, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Purge(ctx, 10)) })
		a.check(err)
		if _, err := a.store.Load(a.Context(), mate.ID); !errors.Is(err, records.ErrNotFound) {
			a.Errorf("load the purged record: %v, want ErrNotFound", err)
		}
		return waited
	}},
	{"AnExecutorWithAClaimOnItsWayIsNotPurged", []postgres.Mutation{without(postgres.LockTerminal, "FOR UPDATE SKIP LOCKED")}, func(a *arena) bool {
		e := a.boot()
		o := a.begin()
		o.does(`SELECT 1 FROM probate.executors WHERE id = $1 FOR KEY SHARE`, e.ID.String()) // as a claim does
		o.does(`
INSERT INTO probate.records (id, realm, key, operation, resource, fingerprint, state, executor_id, executor_url, epoch, attempt, takeovers, created_at)
VALUES (sha256('k'), '', '', '', '', sha256(''), 'in_progress', $1, '', 1, '\x00112233445566778899aabbccddeeff', 0, now())`, e.ID.String())
		// A fence that did not wait for the claim, long ago.
		a.exec(`UPDATE probate.executors SET state = 'fenced', fenced_at = now(), heartbeat_at = now() - interval '2 days' WHERE id = $1`, e.ID.String())
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.PurgeExecutors(ctx, 24*time.Hour)) })
		a.check(err)
		_, err = a.store.LoadExecutor(a.Context(), e.ID)
		return errors.Is(err, records.ErrNotFound)
	}},
}
