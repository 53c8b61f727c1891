package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
)

// A race runs two sides in the one order that would do harm, and reports
// whether harm was done. It is run twice: with the statements as they are, when
// none may be, and with a guard taken out, when it must be: else the guard, or
// the race, is not worth its place.
type race struct {
	name    string
	mutants []postgres.Mutation
	harm    func(a *arena) bool
}

func TestRace(t *testing.T) {
	for _, r := range slices.Concat(executorRaces, reserveRaces, ownerRaces, purgeRaces, operatorRaces) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if r.harm(newArena(t)) {
				t.Error("the race was lost")
			}
		})
		t.Run(r.name+"/WithoutItsGuard", func(t *testing.T) {
			t.Parallel()
			if !r.harm(newArena(t, r.mutants...)) {
				t.Error("the race was won without the guard that it is to test")
			}
		})
	}
}

// without takes a guard out of a statement.
func without(statement, guard string) postgres.Mutation {
	return postgres.Mutation{In: statement, Guard: guard}
}

// unqueued takes away the row on which fences and registrations queue.
var unqueued = without(postgres.LockFleet, "FOR UPDATE")

func probed(suspect, observer records.Executor) records.Suspicion {
	return records.Suspicion{Suspect: suspect.ID, Beat: suspect.Beat, Probed: true, Observer: observer.ID, Reason: "refused"}
}

var executorRaces = []race{
	{"ABeatBehindAFenceDoesNotLand", []postgres.Mutation{
		without(postgres.Heartbeat, " AND e.state IN ('active', 'draining')"),
	}, func(a *arena) bool {
		e, o := a.boot(), a.begin()
		o.fences(e.ID)
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Heartbeat(ctx, e.ID)) })
		return !errors.Is(err, records.ErrNotActive)
	}},
	{"AFenceBehindABeatDoesNotLand", []postgres.Mutation{
		{In: postgres.FenceStatement, Guard: "d.beat = $2::bigint", By: "d.beat >= $2::bigint"},
	}, func(a *arena) bool {
		e, observer, o := a.boot(), a.boot(), a.begin()
		o.does(`UPDATE probate.executors SET beat = beat + 1 WHERE id = $1`, e.ID.String())
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Fence(ctx, probed(e, observer))) })
		return a.state(e.ID) == records.Fenced || !errors.Is(err, records.ErrRefuted)
	}},
	{"TwoNodesCannotFenceEachOther", []postgres.Mutation{unqueued}, func(a *arena) bool {
		one, two, o := a.boot(), a.boot(), a.begin()
		o.fences(two.ID) // by one, whom two fences meanwhile
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Fence(ctx, probed(one, two))) })
		return a.state(one.ID) == records.Fenced || !errors.Is(err, records.ErrObserverUnfit)
	}},
	{"TheBrakeCountsAFenceOnItsWay", []postgres.Mutation{unqueued}, func(a *arena) bool {
		one, two, observer, o := a.boot(), a.boot(), a.boot(), a.begin()
		o.fences(one.ID)
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Fence(ctx, probed(two, observer))) })
		return a.state(two.ID) == records.Fenced || !errors.Is(err, records.ErrBraked)
	}},
	{"AFenceWaitsForAClaimOnItsWay", []postgres.Mutation{without(postgres.LockExecutor, "FOR UPDATE")}, func(a *arena) bool {
		e, observer, o := a.boot(), a.boot(), a.begin()
		o.does(`SELECT 1 FROM probate.executors WHERE id = $1 FOR KEY SHARE`, e.ID.String()) // as a claim does
		waited, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Fence(ctx, probed(e, observer))) })
		a.check(err)
		return !waited // the claim commits behind the fence
	}},
	{"OneOfTwoRegistrationsGetsTheSlot", []postgres.Mutation{unqueued}, func(a *arena) bool {
		// The unique index is a second guard; here the queue stands alone.
		a.exec(`DROP INDEX probate.executors_slot`)
		first, second := registration(), registration()
		second.Slot = first.Slot
		o := a.begin()
		o.does(postgres.LockFleet)
		o.does(`
INSERT INTO probate.executors (id, slot, url, public_key, policy, state, registered_at, beat, heartbeat_at, lease_ttl, lease_since)
VALUES ($1, $2, $3, '', 'probe', 'active', now(), 0, now(), '1 hour', now())`, first.ID.String(), first.Slot, first.URL)
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Register(ctx, second)) })
		return !errors.Is(err, records.ErrSlotTaken)
	}},
	{"ABootThatBeatsKeepsItsSlot", []postgres.Mutation{
		without(postgres.FenceReplaced, " AND d.beat = $2::bigint\n"),
		{In: postgres.FenceReplaced, Guard: "d.policy = 'probe'", By: "$2::bigint IS NOT NULL"},
	}, func(a *arena) bool {
		holder, o := a.boot(), a.begin()
		o.does(`UPDATE probate.executors SET beat = beat + 1 WHERE id = $1`, holder.ID.String())
		next := registration()
		next.Slot, next.Replaces = holder.Slot, records.Sighting{Executor: holder.ID, Beat: holder.Beat}
		_, err := o.meets(func(ctx context.Context) error { return errOf(a.store.Register(ctx, next)) })
		return a.state(holder.ID) == records.Fenced || !errors.Is(err, records.ErrSlotTaken)
	}},
}

// claimRace runs a claim while its executor is being fenced.
func claimRace(a *arena, claim func(ctx context.Context, by records.ExecutorID) error) bool {
	by, o := a.boot(), a.begin()
	o.fences(by.ID)
	_, err := o.meets(func(ctx context.Context) error { return claim(ctx, by.ID) })
	return !errors.Is(err, records.ErrNotActive)
}

// unshared takes away the lock that a claim holds on its executor.
func unshared(statement string) postgres.Mutation { return without(statement, "FOR KEY SHARE") }

var reserveRaces = []race{
	{"NoReserveLandsBehindAFence", []postgres.Mutation{unshared(postgres.ReserveOne)}, func(a *arena) bool {
		return claimRace(a, func(ctx context.Context, by records.ExecutorID) error {
			return errOf(a.store.Reserve(ctx, reservation(by, "k")))
		})
	}},
	{"NoBatchOfReservesLandsBehindAFence", []postgres.Mutation{unshared(postgres.ReserveMany)}, func(a *arena) bool {
		return claimRace(a, func(_ context.Context, by records.ExecutorID) error {
			_, errs := a.store.ReserveBatch([]records.Reservation{reservation(by, "k"), reservation(by, "l")})
			return errs[0]
		})
	}},
	{"NoTakeOverLandsBehindAFence", []postgres.Mutation{unshared(postgres.TakeOver)}, func(a *arena) bool {
		r := a.claim(a.boot().ID, "k")
		return claimRace(a, func(ctx context.Context, by records.ExecutorID) error {
			return errOf(a.store.TakeOver(ctx, records.TakeOver{ID: r.ID, From: r.Fence(), By: by, Attempt: records.NewToken(), SignedNotRunning: true}))
		})
	}},
	{"NoClaimOfAnUnknownLandsBehindAFence", []postgres.Mutation{unshared(postgres.ClaimUnknown)}, func(a *arena) bool {
		r := a.claim(a.boot().ID, "k")
		a.check(a.store.MarkUnknown(a.Context(), r.ID, r.Fence(), 0))
		return claimRace(a, func(ctx context.Context, by records.ExecutorID) error {
			return errOf(a.store.ClaimUnknown(ctx, records.UnknownClaim{ID: r.ID, Epoch: r.Epoch, By: by, Attempt: records.NewToken()}))
		})
	}},
	{"AClaimNeedsAnActiveExecutor", []postgres.Mutation{without(postgres.ReserveOne, " AND e.state = 'active'")}, func(a *arena) bool {
		e := a.boot()
		a.check(a.store.Drain(a.Context(), e.ID))
		_, err := a.store.Reserve(a.Context(), reservation(e.ID, "k"))
		return !errors.Is(err, records.ErrNotActive)
	}},
	{"AnOpenJoinStallsNoReserve", []postgres.Mutation{
		{In: postgres.ReserveOne, Guard: "WHERE NOT EXISTS", By: "WHERE true OR NOT EXISTS"},
	}, func(a *arena) bool {
		e := a.boot()
		r := a.claim(e.ID, "k")
		return openJoin(a, r, func(ctx context.Context) error { return errOf(a.store.Reserve(ctx, reservation(e.ID, "k"))) })
	}},
	{"AnOpenJoinStallsNoBatch", []postgres.Mutation{
		{In: postgres.ReserveMany, Guard: "WHERE NOT EXISTS", By: "WHERE true OR NOT EXISTS"},
	}, func(a *arena) bool {
		e := a.boot()
		r := a.claim(e.ID, "k")
		return openJoin(a, r, func(context.Context) error {
			got, errs := a.store.ReserveBatch([]records.Reservation{reservation(e.ID, "k"), reservation(e.ID, "other")})
			if got[0].Owned || !got[1].Owned {
				a.Errorf("owned = %t, %t, want the free key only", got[0].Owned, got[1].Owned)
			}
			return errors.Join(errs...)
		})
	}},
	{"BatchesOfReservesLockInOneOrder", []postgres.Mutation{
		{In: postgres.ReserveMany, Guard: "ORDER BY u.id", By: "ORDER BY u.id DESC"},
	}, func(a *arena) bool {
		e := a.boot()
		first, second := a.twoKeys()
		for _, key := range []string{first, second} {
			r := a.claim(e.ID, key)
			a.check(a.store.Release(a.Context(), r.ID, r.Fence()))
		}
		return oppositeOrder(a, first, second, func(context.Context) error {
			_, errs := a.store.ReserveBatch([]records.Reservation{reservation(e.ID, second), reservation(e.ID, first)})
			return errors.Join(errs...)
		})
	}},
}

// openJoin runs a call beside a transaction that has finalized r and has not
// committed. The harm is that the call waits for it.
func openJoin(a *arena, r records.Record, call func(ctx context.Context) error) bool {
	o := a.begin()
	o.does(`UPDATE probate.records SET state = 'finalized', status = 201, headers = '\x00', expires_at = now() + interval '1 hour' WHERE id = $1`, r.ID[:])
	waited, err := o.meets(call)
	a.check(err)
	return waited
}

// twoKeys are two keys in the order of their ids.
func (a *arena) twoKeys() (first, second string) {
	first, second = "k", "l"
	if (records.Key{Realm: "realm", Key: first}).ID().Compare(records.Key{Realm: "realm", Key: second}.ID()) > 0 {
		return second, first
	}
	return first, second
}

// oppositeOrder runs a batch against a transaction that locks the first key,
// lets the batch come to it, and then locks the second. The harm is a deadlock.
func oppositeOrder(a *arena, first, second string, batch func(ctx context.Context) error) bool {
	lock := `SELECT 1 FROM probate.records WHERE id = $1 FOR UPDATE`
	firstID, secondID := records.Key{Realm: "realm", Key: first}.ID(), records.Key{Realm: "realm", Key: second}.ID()
	o := a.begin()
	o.does(lock, firstID[:])
	waited, done := a.blocks(batch)
	if !waited {
		a.Fatal("the batch did not come to the locked row")
	}
	_, err := o.tx.ExecContext(a.Context(), lock, secondID[:])
	_ = o.tx.Rollback() // failed already, if it was chosen to end the deadlock
	a.check(<-done)
	return err != nil || len(a.observed) > 0
}

func errOf[T any](_ T, err error) error { return err }
