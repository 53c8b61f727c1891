package recordstest

import (
	"context"
	"time"

	"github.com/probate-dev/probate/records"
)

var finalizeRules = group{name: "Finalize", rules: []rule{
	{"StoresTheResponse", func(f *fixture) {
		r := f.claim(f.active(records.Registration{}).ID)
		done := outcome("done", long)
		f.finalize(r, done)
		got := f.load(r.ID).Record
		want := timeless(r)
		want.State, want.Response = records.Finalized, &done.Response
		f.equal("record", timeless(got), want)
		f.equal("created at", got.CreatedAt, r.CreatedAt)
	}},
	{"StartsTheRetentionByTheDatabasesClock", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		before := f.beat(by.ID).HeartbeatAt
		f.finalize(r, outcome("done", 90*time.Minute))
		f.ended(r, before, f.beat(by.ID).HeartbeatAt, 90*time.Minute)
	}},
	{"RepeatedItKeepsTheFirstResponse", func(f *fixture) {
		r := f.claim(f.active(records.Registration{}).ID)
		f.finalize(r, outcome("first", long))
		before := f.load(r.ID).Record
		f.finalize(r, outcome("first", long))
		f.finalize(r, outcome("second", 2*long))
		f.unchanged(before)
	}},
	{"LandsForADrainingExecutor", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		f.check(f.store.Drain(f.Context(), by.ID))
		f.finalize(r, outcome("done", long))
		f.equal("state", f.load(r.ID).Record.State, records.Finalized)
	}},
	{"LandsForAFencedExecutorThatNobodyOvertook", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		f.fence(by.ID)
		f.finalize(r, outcome("done", long))
		f.equal("state", f.load(r.ID).Record.State, records.Finalized)
	}},
}}

// An end is one of the three writes that move a record out of progress.
type end struct {
	name  string
	state records.State
	write func(ctx context.Context, s records.Store, id records.ID, fence records.Fence) error
}

var ends = []end{
	{"Finalize", records.Finalized, func(ctx context.Context, s records.Store, id records.ID, fence records.Fence) error {
		return s.Finalize(ctx, id, fence, outcome("done", long))
	}},
	{"Release", records.Released, func(ctx context.Context, s records.Store, id records.ID, fence records.Fence) error {
		return s.Release(ctx, id, fence)
	}},
	{"MarkUnknown", records.Unknown, func(ctx context.Context, s records.Store, id records.ID, fence records.Fence) error {
		return s.MarkUnknown(ctx, id, fence, long)
	}},
}

// endRules are what the three have in common.
var endRules = group{name: "End", rules: rulesFor(ends, func(e end) []rule {
	return []rule{
		{e.name + "LandsOnceAndRepeatsQuietly", func(f *fixture) {
			r := f.claim(f.active(records.Registration{}).ID)
			f.check(e.write(f.Context(), f.store, r.ID, r.Fence()))
			before := f.load(r.ID).Record
			f.equal("state", before.State, e.state)
			f.equal("response kept", before.Response != nil, e.state == records.Finalized)
			if before.FinalizedAt.Before(r.CreatedAt) || before.ExpiresAt.Before(before.FinalizedAt) {
				f.Errorf("finalized at %s, expires at %s, created at %s", before.FinalizedAt, before.ExpiresAt, r.CreatedAt)
			}
			f.check(e.write(f.Context(), f.store, r.ID, r.Fence()))
			f.unchanged(before)
		}},
		{e.name + "RefusesAnotherEpoch", func(f *fixture) {
			for _, step := range []int64{-1, 1} {
				r := f.claim(f.active(records.Registration{}).ID)
				fence := r.Fence()
				fence.Epoch += step
				f.refused(e.write(f.Context(), f.store, r.ID, fence), records.ErrFenced)
				f.unchanged(r)
			}
		}},
		{e.name + "RefusesAnOlderEpochOfTheSameExecutor", func(f *fixture) {
			a := f.active(records.Registration{})
			r := f.claim(a.ID)
			now, err := f.store.TakeOver(f.Context(), takeOver(r, a.ID))
			f.check(err)
			f.refused(e.write(f.Context(), f.store, r.ID, r.Fence()), records.ErrFenced)
			f.unchanged(now)
		}},
		{e.name + "RefusesAnotherExecutorAtTheSameEpoch", func(f *fixture) {
			r := f.claim(f.active(records.Registration{}).ID)
			fence := records.Fence{Executor: f.active(records.Registration{}).ID, Epoch: r.Epoch}
			f.refused(e.write(f.Context(), f.store, r.ID, fence), records.ErrFenced)
			f.unchanged(r)
		}},
		{e.name + "RefusesARecordThatIsNotThere", func(f *fixture) {
			a := f.active(records.Registration{})
			fence := records.Fence{Executor: a.ID, Epoch: 1}
			f.refused(e.write(f.Context(), f.store, reservation(a.ID).ID, fence), records.ErrFenced)
		}},
		{e.name + "RefusesWhatEndedOtherwise", func(f *fixture) {
			for _, other := range ends {
				if other.name == e.name {
					continue
				}
				r := f.claim(f.active(records.Registration{}).ID)
				f.check(other.write(f.Context(), f.store, r.ID, r.Fence()))
				before := f.load(r.ID).Record
				f.refused(e.write(f.Context(), f.store, r.ID, r.Fence()), records.ErrFenced)
				f.unchanged(before)
			}
		}},
		{e.name + "TouchesNoOtherRecord", func(f *fixture) {
			a := f.active(records.Registration{})
			r, other := f.claim(a.ID), f.claim(a.ID)
			f.check(e.write(f.Context(), f.store, r.ID, r.Fence()))
			f.unchanged(other)
		}},
	}
}, []rule{
	{"MarkUnknownStartsItsRetention", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		before := f.beat(by.ID).HeartbeatAt
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), 90*time.Minute))
		f.ended(r, before, f.beat(by.ID).HeartbeatAt, 90*time.Minute)
	}},
	{"ReleaseIsRememberedOnlyForTheGrace", func(f *fixture) {
		by := f.active(records.Registration{})
		r := f.claim(by.ID)
		before := f.beat(by.ID).HeartbeatAt
		f.check(f.store.Release(f.Context(), r.ID, r.Fence()))
		f.ended(r, before, f.beat(by.ID).HeartbeatAt, 0)
	}},
})}

// ended demands that the record left progress between two instants of the
// database's clock, to be remembered from then on for the retention.
func (f *fixture) ended(r records.Record, from, to time.Time, retention time.Duration) {
	f.Helper()
	got := f.load(r.ID).Record
	if got.FinalizedAt.Before(from) || got.FinalizedAt.After(to) {
		f.Errorf("finalized at %s, want %s to %s", got.FinalizedAt, from, to)
	}
	if got.ExpiresAt.Before(from.Add(retention)) || got.ExpiresAt.After(to.Add(retention)) {
		f.Errorf("expires at %s, want %s after %s to %s", got.ExpiresAt, retention, from, to)
	}
}

// rulesFor joins the rules made for each item, and further ones.
func rulesFor[T any](items []T, rules func(T) []rule, more []rule) []rule {
	var all []rule
	for _, item := range items {
		all = append(all, rules(item)...)
	}
	return append(all, more...)
}
