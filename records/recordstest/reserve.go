package recordstest

import (
	"time"

	"github.com/probate-dev/probate/records"
)

var reserveRules = group{name: "Reserve", rules: []rule{
	{"TheFirstCallerOwnsTheKey", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		r.Request = []byte("stored request")
		got, err := f.store.Reserve(f.Context(), r)
		f.check(err)
		f.equal("owned", got.Owned, true)
		f.equal("record", timeless(got.Record), records.Record{
			ID: r.ID, Realm: r.Realm, Key: r.Key, Operation: r.Operation, Resource: r.Resource, Fingerprint: r.Fingerprint,
			State: records.InProgress, Executor: by.ID, ExecutorURL: by.URL, Epoch: got.Record.Epoch,
			Attempt: r.Attempt, Request: r.Request,
		})
		f.equal("record read back", f.load(r.ID).Record, got.Record)
	}},
	{"AFirstClaimsEpochIsTheDatabasesClock", func(f *fixture) {
		by := f.active(records.Registration{})
		before := f.beat(by.ID).HeartbeatAt
		r := f.claim(by.ID)
		after := f.beat(by.ID).HeartbeatAt
		if r.Epoch < before.UnixMicro() || r.Epoch > after.UnixMicro() {
			f.Errorf("epoch %d, want %d to %d", r.Epoch, before.UnixMicro(), after.UnixMicro())
		}
		if r.CreatedAt.Before(before) || r.CreatedAt.After(after) {
			f.Errorf("created at %s, want %s to %s", r.CreatedAt, before, after)
		}
	}},
	{"InProgressItHasNoExpiry", func(f *fixture) {
		r := f.claim(f.active(records.Registration{}).ID)
		if !r.ExpiresAt.IsZero() || !r.FinalizedAt.IsZero() || r.Response != nil {
			f.Errorf("expires at %s, finalized at %s, response %v", r.ExpiresAt, r.FinalizedAt, r.Response)
		}
	}},
	{"ADuplicateGetsTheHolderAndItsExecutor", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		r := reservation(a.ID)
		first := f.reserve(r)
		a = f.beat(a.ID)
		for _, by := range []records.ExecutorID{a.ID, b.ID} {
			got, err := f.store.Reserve(f.Context(), again(r, by))
			f.check(err)
			f.equal("owned", got.Owned, false)
			f.equal("record", got.Record, first)
			f.equal("executor", ageless(got.Executor), ageless(a))
		}
	}},
	{"ADuplicateSeesADeadHolder", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		r := reservation(a.ID)
		f.reserve(r)
		f.fence(a.ID)
		got, err := f.store.Reserve(f.Context(), again(r, b.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("executor", ageless(got.Executor), ageless(f.executor(a.ID)))
	}},
	{"ADuplicateOfAFinalizedKeyGetsTheResponse", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		done := outcome("done", long)
		f.finalize(f.reserve(r), done)
		got, err := f.store.Reserve(f.Context(), again(r, by.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("state", got.Record.State, records.Finalized)
		f.equal("response", got.Record.Response, &done.Response)
	}},
	{"RepeatedWithItsTokenItIsMineAgain", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		f.equal("record", f.reserve(r), first)
		f.check(f.store.Drain(f.Context(), by.ID)) // it claims nothing new, but this it has
		f.equal("record", f.reserve(r), first)
	}},
	{"TheTokenOfAnotherExecutorIsNotMine", func(f *fixture) {
		r := reservation(f.active(records.Registration{}).ID)
		f.reserve(r)
		r.By = f.active(records.Registration{}).ID
		got, err := f.store.Reserve(f.Context(), r)
		f.check(err)
		f.equal("owned", got.Owned, false)
	}},
	{"ItsTokenIsWorthNothingOnceTheClaimEnded", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		f.finalize(f.reserve(r), outcome("done", long))
		got, err := f.store.Reserve(f.Context(), r)
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("state", got.Record.State, records.Finalized)
	}},
	{"ItsTokenIsWorthNothingOnceItWasOvertaken", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		_, err := f.store.TakeOver(f.Context(), takeOver(first, by.ID))
		f.check(err)
		got, err := f.store.Reserve(f.Context(), r)
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("epoch", got.Record.Epoch, first.Epoch+1)
	}},
	{"NeedsAnActiveExecutor", func(f *fixture) {
		released := f.claim(f.active(records.Registration{}).ID)
		f.check(f.store.Release(f.Context(), released.ID, released.Fence()))
		released = f.load(released.ID).Record
		for _, id := range f.inactive() {
			r := reservation(id)
			_, err := f.store.Reserve(f.Context(), r)
			f.refused(err, records.ErrNotActive)
			_, err = f.store.Load(f.Context(), r.ID)
			f.refused(err, records.ErrNotFound)

			r.ID = released.ID // free, but not for this one
			_, err = f.store.Reserve(f.Context(), r)
			f.refused(err, records.ErrNotActive)
		}
		f.unchanged(released)
	}},
	{"WhoMayNotClaimMayStillAsk", func(f *fixture) {
		r := reservation(f.active(records.Registration{}).ID)
		first := f.reserve(r)
		for _, id := range f.inactive() {
			got, err := f.store.Reserve(f.Context(), again(r, id))
			f.check(err)
			f.equal("owned", got.Owned, false)
			f.equal("record", got.Record, first)
		}
	}},
	{"AnotherFingerprintChangesNothing", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		other := again(r, by.ID)
		other.Fingerprint, other.Operation = records.FingerprintOf("other"), "DELETE /orders"
		got, err := f.store.Reserve(f.Context(), other)
		f.check(err)
		f.equal("record", got.Record, first)
	}},
	{"LoadReadsWhatIsThereAndNothingElse", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		got := f.load(r.ID)
		f.equal("record", got.Record, r)
		f.equal("executor", ageless(got.Executor), ageless(by))
		_, err := f.store.Load(f.Context(), reservation(by.ID).ID)
		f.refused(err, records.ErrNotFound)
	}},
}}

// timeless is the record without its instants.
func timeless(r records.Record) records.Record {
	r.CreatedAt, r.FinalizedAt, r.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	return r
}

var claimableRules = group{name: "Claimable", rules: []rule{
	{"AReleasedKeyAtOnce", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		f.check(f.store.Release(f.Context(), first.ID, first.Fence()))
		f.isNewClaim(f.reserve(again(r, by.ID)), first)
	}},
	{"AFinalizedKeyOnlyAfterItsRetentionAndGrace", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		f.finalize(first, outcome("done", 0))
		f.claimedAfterGrace(r, first)
	}},
	{"AnUnknownKeyOnlyAfterItsRetentionAndGrace", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		first := f.reserve(r)
		f.check(f.store.MarkUnknown(f.Context(), first.ID, first.Fence(), 0))
		f.claimedAfterGrace(r, first)
	}},
	{"NotWhileTheRetentionRuns", func(f *fixture) {
		by := f.active(records.Registration{})
		finalized := reservation(by.ID)
		f.finalize(f.reserve(finalized), outcome("done", long))
		unknown := reservation(by.ID)
		u := f.reserve(unknown)
		f.check(f.store.MarkUnknown(f.Context(), u.ID, u.Fence(), long))
		f.elapse(Grace)
		for _, r := range []records.Reservation{finalized, unknown} {
			got, err := f.store.Reserve(f.Context(), again(r, by.ID))
			f.check(err)
			f.equal("owned", got.Owned, false)
		}
	}},
	{"NeverWhileInProgress", func(f *fixture) {
		a := f.active(records.Registration{LeaseTTL: time.Millisecond})
		b := f.active(records.Registration{})
		r := reservation(a.ID)
		first := f.reserve(r)
		f.fence(a.ID)
		f.elapse(2 * Grace)
		got, err := f.store.Reserve(f.Context(), again(r, b.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.unchanged(first)
	}},
	{"TheNewClaimReplacesWhatWasAsked", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		r := reservation(a.ID)
		r.Request = []byte("first request")
		first := f.reserve(r)
		f.check(f.store.Release(f.Context(), first.ID, first.Fence()))
		next := again(r, b.ID)
		next.Operation, next.Resource, next.Request = "PUT /orders", "/orders/8", nil
		next.Fingerprint = records.FingerprintOf("another body")
		got := f.reserve(next)
		f.equal("record", timeless(got), records.Record{
			ID: r.ID, Realm: r.Realm, Key: r.Key, Operation: next.Operation, Resource: next.Resource,
			Fingerprint: next.Fingerprint, State: records.InProgress, Executor: b.ID, ExecutorURL: b.URL,
			Epoch: first.Epoch + 1, Attempt: next.Attempt, Takeovers: got.Takeovers,
		})
		f.equal("record read back", f.load(r.ID).Record, got)
	}},
	{"TheNewClaimForgetsTheOldResponse", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		f.finalize(f.reserve(r), outcome("done", 0))
		f.elapse(Grace)
		got := f.reserve(again(r, by.ID))
		f.equal("response", got.Response, (*records.Response)(nil))
		f.equal("take-overs", got.Takeovers, 0)
		f.equal("record read back", f.load(r.ID).Record, got)
	}},
}}

// isNewClaim demands that got is a claim of its own after before.
func (f *fixture) isNewClaim(got, before records.Record) {
	f.Helper()
	f.equal("state", got.State, records.InProgress)
	f.equal("epoch", got.Epoch, before.Epoch+1)
	if !got.CreatedAt.After(before.CreatedAt) || !got.ExpiresAt.IsZero() || !got.FinalizedAt.IsZero() {
		f.Errorf("created at %s, finalized at %s, expires at %s, want times of its own after %s",
			got.CreatedAt, got.FinalizedAt, got.ExpiresAt, before.CreatedAt)
	}
	f.equal("record read back", f.load(got.ID).Record, got)
}

// claimedAfterGrace asks for a key with no retention until it is granted. By
// the database's own account that is not before the grace has passed.
func (f *fixture) claimedAfterGrace(r records.Reservation, first records.Record) {
	f.Helper()
	expires := f.load(r.ID).Record.ExpiresAt
	var claimed records.Record
	f.await("the key is granted anew", func() bool {
		got, err := f.store.Reserve(f.Context(), again(r, r.By))
		f.check(err)
		claimed = got.Record
		return got.Owned
	})
	f.isNewClaim(claimed, first)
	if waited := claimed.CreatedAt.Sub(expires); waited < Grace {
		f.Errorf("claimed %s after its expiry, want at least %s", waited, Grace)
	}
}
