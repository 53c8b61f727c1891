package recordstest

import (
	"time"

	"github.com/probate-dev/probate/records"
)

var takeOverRules = group{name: "TakeOver", rules: []rule{
	{"MovesARecordOfAFencedExecutor", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		f.takesOver(takeOver(r, f.active(records.Registration{}).ID), r)
	}},
	{"MovesARecordOfAnExecutorThatLeft", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.check(f.store.Drain(f.Context(), a.ID))
		f.check(f.store.Retire(f.Context(), a.ID))
		f.takesOver(takeOver(r, f.active(records.Registration{}).ID), r)
	}},
	{"MovesARecordThatItsExecutorSignedItDoesNotRun", func(f *fixture) {
		for _, a := range []records.Executor{f.active(records.Registration{}), f.active(records.Registration{Policy: records.PolicyLease})} {
			r := f.claim(a.ID)
			t := takeOver(r, f.active(records.Registration{}).ID)
			t.SignedNotRunning = true
			f.takesOver(t, r)
			f.equal("the living executor's state", f.executor(a.ID).State, records.Active)
		}
	}},
	{"MovesARecordFromAnExecutorToItself", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.takesOver(takeOver(r, a.ID), r)
	}},
	{"CountsEveryTakeOver", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		for range 3 {
			r = f.takesOver(takeOver(r, a.ID), r)
		}
		f.equal("take-overs", r.Takeovers, 3)
	}},
	{"KeepsWhatWasAsked", func(f *fixture) {
		a := f.active(records.Registration{})
		asked := reservation(a.ID)
		asked.Request = []byte("stored request")
		r := f.reserve(asked)
		got := f.takesOver(takeOver(r, a.ID), r)
		f.equal("request", got.Request, asked.Request)
	}},
	{"TouchesNoOtherRecord", func(f *fixture) {
		a := f.active(records.Registration{})
		r, other := f.claim(a.ID), f.claim(a.ID)
		f.takesOver(takeOver(r, a.ID), r)
		f.unchanged(other)
	}},
	{"RepeatedWithItsTokenItReturnsTheRecord", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		t := takeOver(r, f.active(records.Registration{}).ID)
		first := f.takesOver(t, r)
		again, err := f.store.TakeOver(f.Context(), t)
		f.check(err)
		f.equal("record", again, first)
	}},
	{"OvertakenTheFirstOwnerWritesNothing", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		got := f.takesOver(takeOver(r, f.active(records.Registration{}).ID), r)
		f.shutOut(r)
		f.unchanged(got)
		f.finalize(got, outcome("the successor's", long))
		f.shutOut(r)
	}},
}}

// takesOver demands that a take-over of before lands, with the next epoch and
// nothing else changed.
func (f *fixture) takesOver(t records.TakeOver, before records.Record) records.Record {
	f.Helper()
	got, err := f.store.TakeOver(f.Context(), t)
	f.check(err)
	want := before
	want.Executor, want.ExecutorURL, want.Attempt = t.By, f.executor(t.By).URL, t.Attempt
	want.Epoch++
	want.Takeovers++
	f.equal("record", got, want)
	f.equal("record read back", f.load(t.ID).Record, got)
	return got
}

// shutOut demands that every write under the fence of r, as it once stood, is
// refused.
func (f *fixture) shutOut(r records.Record) {
	f.Helper()
	ctx := f.Context()
	f.refused(f.store.Finalize(ctx, r.ID, r.Fence(), outcome("late", long)), records.ErrFenced)
	f.refused(f.store.Release(ctx, r.ID, r.Fence()), records.ErrFenced)
	f.refused(f.store.MarkUnknown(ctx, r.ID, r.Fence(), long), records.ErrFenced)
	t := takeOver(r, f.active(records.Registration{}).ID)
	t.SignedNotRunning = true
	_, err := f.store.TakeOver(ctx, t)
	f.refused(err, records.ErrFenced)
}

var refusedTakeOverRules = group{name: "TakeOverRefuses", rules: []rule{
	{"WhileTheExecutorLives", func(f *fixture) {
		a := f.active(records.Registration{LeaseTTL: time.Millisecond})
		r := f.claim(a.ID)
		f.elapse(time.Millisecond) // an expired lease alone is no fence
		f.staysPut(takeOver(r, f.active(records.Registration{}).ID), records.ErrFenced)
		f.check(f.store.Drain(f.Context(), a.ID))
		f.staysPut(takeOver(r, f.active(records.Registration{}).ID), records.ErrFenced)
	}},
	{"ATakerThatIsNotActive", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		for _, id := range f.inactive() {
			f.staysPut(takeOver(r, id), records.ErrNotActive)
		}
	}},
	{"ATakerThatIsNotActiveHoweverGoodItsReason", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.check(f.store.Drain(f.Context(), a.ID))
		f.staysPut(takeOver(r, a.ID), records.ErrNotActive)
		t := takeOver(r, f.fenced(records.Registration{}).ID)
		t.SignedNotRunning = true
		f.staysPut(t, records.ErrNotActive)
	}},
	{"AnOlderEpoch", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		now, err := f.store.TakeOver(f.Context(), takeOver(r, a.ID))
		f.check(err)
		f.fence(a.ID)
		f.staysPut(takeOver(r, f.active(records.Registration{}).ID), records.ErrFenced)
		f.unchanged(now)
	}},
	{"AnEpochThatIsNotYet", func(f *fixture) {
		a := f.active(records.Registration{})
		t := takeOver(f.claim(a.ID), a.ID)
		t.From.Epoch++
		f.staysPut(t, records.ErrFenced)
	}},
	{"AnotherExecutorsNameOnTheRecord", func(f *fixture) {
		a, dead := f.active(records.Registration{}), f.fenced(records.Registration{})
		t := takeOver(f.claim(a.ID), f.active(records.Registration{}).ID)
		t.From.Executor = dead.ID
		f.staysPut(t, records.ErrFenced)
		t.From.Executor, t.SignedNotRunning = t.By, true
		f.staysPut(t, records.ErrFenced)
	}},
	{"ARecordThatIsNotInProgress", func(f *fixture) {
		a := f.active(records.Registration{})
		for _, end := range ends {
			r := f.claim(a.ID)
			f.check(end.write(f.Context(), f.store, r.ID, r.Fence()))
			t := takeOver(r, a.ID)
			t.SignedNotRunning = true
			f.staysPut(t, records.ErrFenced)
		}
	}},
	{"ARecordThatIsNotThere", func(f *fixture) {
		a := f.active(records.Registration{})
		r := records.Record{ID: reservation(a.ID).ID, Executor: a.ID, Epoch: 1}
		_, err := f.store.TakeOver(f.Context(), takeOver(r, a.ID))
		f.refused(err, records.ErrFenced)
	}},
}}

// staysPut demands that a take-over is refused and changes nothing.
func (f *fixture) staysPut(t records.TakeOver, want error) {
	f.Helper()
	before := f.load(t.ID).Record
	_, err := f.store.TakeOver(f.Context(), t)
	f.refused(err, want)
	f.unchanged(before)
}

var claimUnknownRules = group{name: "ClaimUnknown", rules: []rule{
	{"MovesAnUnknownRecordToInProgress", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		asked := reservation(a.ID)
		asked.Request = []byte("stored request")
		r := f.reserve(asked)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		c := claimOf(r, b.ID)
		got, err := f.store.ClaimUnknown(f.Context(), c)
		f.check(err)
		want := r
		want.Executor, want.ExecutorURL, want.Attempt = b.ID, b.URL, c.Attempt
		want.Epoch++
		want.Takeovers = got.Takeovers
		f.equal("record", got, want)
		f.equal("record read back", f.load(r.ID).Record, got)
		f.shutOut(r)
		f.finalize(got, outcome("reconciled", long))
	}},
	{"RepeatedWithItsTokenItReturnsTheRecord", func(f *fixture) {
		c := claimOf(f.unknown(f.active(records.Registration{}).ID), f.active(records.Registration{}).ID)
		first, err := f.store.ClaimUnknown(f.Context(), c)
		f.check(err)
		again, err := f.store.ClaimUnknown(f.Context(), c)
		f.check(err)
		f.equal("record", again, first)
	}},
	{"RefusesAnotherEpoch", func(f *fixture) {
		a := f.active(records.Registration{})
		for _, step := range []int64{-1, 1} {
			c := claimOf(f.unknown(a.ID), a.ID)
			c.Epoch += step
			f.remainsUnclaimed(c, records.ErrFenced)
		}
	}},
	{"RefusesARecordThatIsNotUnknown", func(f *fixture) {
		a := f.active(records.Registration{})
		f.remainsUnclaimed(claimOf(f.claim(a.ID), a.ID), records.ErrFenced)
		for _, end := range ends {
			if end.state == records.Unknown {
				continue
			}
			r := f.claim(a.ID)
			f.check(end.write(f.Context(), f.store, r.ID, r.Fence()))
			f.remainsUnclaimed(claimOf(r, a.ID), records.ErrFenced)
		}
		missing := records.Record{ID: reservation(a.ID).ID, Epoch: 1}
		_, err := f.store.ClaimUnknown(f.Context(), claimOf(missing, a.ID))
		f.refused(err, records.ErrFenced)
	}},
	{"NeedsAnActiveExecutor", func(f *fixture) {
		r := f.unknown(f.active(records.Registration{}).ID)
		for _, id := range f.inactive() {
			f.remainsUnclaimed(claimOf(r, id), records.ErrNotActive)
		}
	}},
}}

func (f *fixture) remainsUnclaimed(c records.UnknownClaim, want error) {
	f.Helper()
	before := f.load(c.ID).Record
	_, err := f.store.ClaimUnknown(f.Context(), c)
	f.refused(err, want)
	f.unchanged(before)
}
