package recordstest

import (
	"time"

	"github.com/probate-dev/probate/records"
)

var purgeRules = group{name: "Purge", alone: true, rules: []rule{
	{"DeletesWhatIsPastItsRetentionAndGrace", func(f *fixture) {
		a := f.active(records.Registration{})
		dead := f.expired(a.ID)
		f.elapse(Grace)
		f.purges(1000, len(dead))
		for _, r := range dead {
			_, err := f.store.Load(f.Context(), r.ID)
			f.refused(err, records.ErrNotFound)
		}
		f.purges(1000, 0)
	}},
	{"KeepsWhatItsRetentionProtects", func(f *fixture) {
		a := f.active(records.Registration{})
		finalized := f.claim(a.ID)
		f.finalize(finalized, outcome("done", long))
		kept := []records.Record{f.load(finalized.ID).Record, f.unknown(a.ID)}
		f.elapse(2 * Grace)
		f.purges(1000, 0)
		for _, r := range kept {
			f.unchanged(r)
		}
	}},
	{"WaitsForTheGrace", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.finalize(r, outcome("done", 0))
		expires := f.load(r.ID).Record.ExpiresAt
		f.await("the record is purged", func() bool {
			n, err := f.store.Purge(f.Context(), 1)
			f.check(err)
			return n == 1
		})
		if waited := f.beat(a.ID).HeartbeatAt.Sub(expires); waited < Grace {
			f.Errorf("purged %s after its expiry, want at least %s", waited, Grace)
		}
	}},
	{"NeverTakesARecordInProgress", func(f *fixture) {
		a := f.active(records.Registration{LeaseTTL: time.Millisecond})
		overtaken := f.claim(a.ID)
		overtaken, err := f.store.TakeOver(f.Context(), takeOver(overtaken, a.ID))
		f.check(err)
		reclaimed := reservation(a.ID)
		f.finalize(f.reserve(reclaimed), outcome("done", 0))
		f.elapse(Grace)
		kept := []records.Record{f.claim(a.ID), overtaken, f.reserve(again(reclaimed, a.ID))}
		f.fence(a.ID)
		f.elapse(2 * Grace)
		f.purges(1000, 0)
		for _, r := range kept {
			f.unchanged(r)
		}
	}},
	{"NeverTakesARecordClaimedFromUnknown", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), 0))
		r, err := f.store.ClaimUnknown(f.Context(), claimOf(r, a.ID))
		f.check(err)
		f.elapse(2 * Grace)
		f.purges(1000, 0)
		f.unchanged(r)
	}},
	{"DeletesAtMostTheLimit", func(f *fixture) {
		a := f.active(records.Registration{})
		for range 5 {
			f.finalize(f.claim(a.ID), outcome("done", 0))
		}
		f.elapse(Grace)
		f.purges(2, 2)
		f.purges(2, 2)
		f.purges(2, 1)
		f.purges(2, 0)
	}},
	{"APurgedKeyComesBackWithAGreaterEpoch", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		f.check(f.store.Release(f.Context(), first.ID, first.Fence()))
		f.purged(first.ID)
		got := f.reserve(again(r, by.ID))
		if got.Epoch <= first.Epoch {
			f.Errorf("epoch %d after epoch %d", got.Epoch, first.Epoch)
		}
	}},
	{"AReclaimedKeyThatIsPurgedStillGrows", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		last := f.reserve(r)
		for range 5 {
			f.check(f.store.Release(f.Context(), last.ID, last.Fence()))
			last = f.reserve(again(r, by.ID))
		}
		f.check(f.store.Release(f.Context(), last.ID, last.Fence()))
		f.purged(last.ID)
		if got := f.reserve(again(r, by.ID)); got.Epoch <= last.Epoch {
			f.Errorf("epoch %d after epoch %d", got.Epoch, last.Epoch)
		}
	}},
}}

// expired is one record of each kind that ended with nothing to remember.
func (f *fixture) expired(by records.ExecutorID) []records.Record {
	f.Helper()
	finalized, unknown, released := f.claim(by), f.claim(by), f.claim(by)
	f.finalize(finalized, outcome("done", 0))
	f.check(f.store.MarkUnknown(f.Context(), unknown.ID, unknown.Fence(), 0))
	f.check(f.store.Release(f.Context(), released.ID, released.Fence()))
	return []records.Record{finalized, unknown, released}
}

func (f *fixture) purges(limit, want int) {
	f.Helper()
	n, err := f.store.Purge(f.Context(), limit)
	f.check(err)
	f.equal("records purged", n, want)
}

// purged purges until the record is gone.
func (f *fixture) purged(id records.ID) {
	f.Helper()
	f.await("the record is purged", func() bool {
		_, err := f.store.Purge(f.Context(), 1000)
		f.check(err)
		_, err = f.store.Load(f.Context(), id)
		return isAny(err, records.ErrNotFound)
	})
}

var executorPurgeRules = group{name: "PurgeExecutors", alone: true, rules: []rule{
	{"DeletesTerminalOnesThatAreOldEnough", func(f *fixture) {
		fenced, gone := f.fenced(records.Registration{}), f.gone(records.Registration{})
		f.purgesExecutors(long, 0)
		f.elapse(5 * time.Millisecond)
		f.purgesExecutors(5*time.Millisecond, 3, fenced.ID, gone.ID) // and the clock that elapse watched
	}},
	{"KeepsThoseThatLive", func(f *fixture) {
		a := f.active(records.Registration{LeaseTTL: time.Millisecond})
		d := f.draining(records.Registration{LeaseTTL: time.Millisecond})
		f.elapse(5 * time.Millisecond)
		f.purgesExecutors(0, 1) // the clock that elapse watched
		f.equal("state", f.executor(a.ID).State, records.Active)
		f.equal("state", f.executor(d.ID).State, records.Draining)
	}},
	{"KeepsThoseThatHoldARecordInProgress", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		f.elapse(time.Millisecond)
		f.purgesExecutors(0, 1) // the clock
		f.equal("executor of the record", f.load(r.ID).Executor.ID, a.ID)

		f.finalize(r, outcome("done", long))
		f.purgesExecutors(0, 1, a.ID)
	}},
	{"ARecordThatEndedOutlivesItsExecutor", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.finalize(r, outcome("done", long))
		before := f.load(r.ID).Record
		f.fence(a.ID)
		f.elapse(time.Millisecond)
		f.purgesExecutors(0, 2, a.ID)
		f.unchanged(before)
		f.equal("executor", f.load(r.ID).Executor, records.Executor{})
		f.equal("executor's name on the record", before.Executor, a.ID)
	}},
}}

// purgesExecutors demands a number, and that the given ones are among them.
func (f *fixture) purgesExecutors(age time.Duration, want int, ids ...records.ExecutorID) {
	f.Helper()
	n, err := f.store.PurgeExecutors(f.Context(), age)
	f.check(err)
	f.equal("executors purged", n, want)
	for _, id := range ids {
		_, err := f.store.LoadExecutor(f.Context(), id)
		f.refused(err, records.ErrNotFound)
	}
}
