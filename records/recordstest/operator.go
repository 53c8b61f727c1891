package recordstest

import (
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

// intervention is an operator's, at the epoch at which the record stands.
func intervention(r records.Record) records.Intervention {
	return records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "operator", Reason: "looked it up"}
}

// orphaned claims a fresh key and fences its executor.
func (f *fixture) orphaned() records.Record {
	f.Helper()
	a := f.active(records.Registration{})
	r := f.claim(a.ID)
	f.fence(a.ID)
	return r
}

// released demands that the operator's release lands.
func (f *fixture) released(before records.Record) records.Record {
	f.Helper()
	got, err := f.store.ReleaseByOperator(f.Context(), intervention(before))
	f.check(err)
	f.intervened(before, got, records.Released)
	return got
}

// resolved demands that the operator's outcome lands.
func (f *fixture) resolved(before records.Record, o records.Outcome) records.Record {
	f.Helper()
	got, err := f.store.ResolveByOperator(f.Context(), intervention(before), o)
	f.check(err)
	f.intervened(before, got, records.Finalized)
	f.equal("response", got.Response, &o.Response)
	f.equal("retention", got.ExpiresAt.Sub(got.FinalizedAt), o.Retention)
	return got
}

// intervened demands that the record went to a state at the next epoch, is what
// is stored, and left one event.
func (f *fixture) intervened(before, got records.Record, to records.State) {
	f.Helper()
	want := before
	want.State, want.Epoch, want.Attempt, want.Response = to, before.Epoch+1, got.Attempt, got.Response
	f.equal("record", timeless(got), timeless(want))
	f.unchanged(got)
	kind := records.EventReleased
	if to == records.Finalized {
		kind = records.EventResolved
	}
	f.equal("events", dateless(f.eventsOf(got.ID)), []records.Event{{
		Kind: kind, Record: got.ID, Epoch: got.Epoch, Executor: got.Executor,
		Actor: "operator", Reason: "looked it up", Before: string(before.State), After: string(to),
	}})
}

// eventsOf reads all events of a record.
func (f *fixture) eventsOf(id records.ID) []records.Event {
	f.Helper()
	return f.events(records.EventFilter{Record: id, Limit: 1000})
}

// dateless is events without the instants.
func dateless(all []records.Event) []records.Event {
	for i := range all {
		all[i].At = time.Time{}
	}
	return all
}

var releaseRules = group{name: "ReleaseByOperator", rules: []rule{
	{"FreesAnUnknownRecord", func(f *fixture) {
		a := f.active(records.Registration{})
		asked := reservation(a.ID)
		r := f.reserve(asked)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		got := f.released(f.load(r.ID).Record)
		next := f.reserve(again(asked, a.ID))
		f.equal("epoch", next.Epoch, got.Epoch+1)
	}},
	{"FreesARecordInProgressOfATerminalExecutor", func(f *fixture) {
		f.released(f.orphaned())
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.check(f.store.Drain(f.Context(), a.ID))
		f.check(f.store.Retire(f.Context(), a.ID))
		f.released(r)
	}},
	{"RefusesARecordInProgressOfAnExecutorThatMayLive", func(f *fixture) {
		a := f.active(records.Registration{LeaseTTL: 5 * time.Millisecond})
		r := f.claim(a.ID)
		f.elapse(10 * time.Millisecond) // silent is not dead
		for range 2 {
			_, err := f.store.ReleaseByOperator(f.Context(), intervention(r))
			f.refused(err, records.ErrFenced)
			f.unchanged(r)
			f.check(f.store.Drain(f.Context(), a.ID))
		}
		f.equal("events", len(f.eventsOf(r.ID)), 0)
	}},
	{"RefusesWhatHasEnded", func(f *fixture) {
		a := f.active(records.Registration{})
		done, free := f.claim(a.ID), f.claim(a.ID)
		f.finalize(done, outcome("done", long))
		f.check(f.store.Release(f.Context(), free.ID, free.Fence()))
		for _, r := range []records.Record{done, free} {
			stands := f.load(r.ID).Record
			_, err := f.store.ReleaseByOperator(f.Context(), intervention(stands))
			f.refused(err, records.ErrFenced)
			f.unchanged(stands)
		}
	}},
	{"AfterItTheOwnerOfBeforeWritesNothing", func(f *fixture) {
		r := f.orphaned()
		got := f.released(r)
		f.shutOut(r)
		f.unchanged(got)
	}},
	interventionRefuses("release", func(f *fixture, i records.Intervention) error {
		return errOf(f.store.ReleaseByOperator(f.Context(), i))
	}),
	interventionRepeats(ReleaseByOperator, func(f *fixture, s records.Store, i records.Intervention) (records.Record, error) {
		return s.ReleaseByOperator(f.Context(), i)
	}),
}}

var resolveRules = group{name: "ResolveByOperator", rules: []rule{
	{"EndsAnUnknownRecordWithTheOutcome", func(f *fixture) {
		a := f.active(records.Registration{})
		for _, o := range []records.Outcome{
			outcome("found out", long),
			{Response: records.Response{Status: 204, Body: []byte{}}, Retention: long},
			{Response: records.Response{Status: 201}, Retention: 0},
		} {
			f.resolved(f.unknown(a.ID), o)
		}
	}},
	{"ItsOutcomeIsReplayed", func(f *fixture) {
		a := f.active(records.Registration{})
		asked := reservation(a.ID)
		r := f.reserve(asked)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		resolved := f.resolved(f.load(r.ID).Record, outcome("found out", long))
		got, err := f.store.Reserve(f.Context(), again(asked, a.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("record", got.Record, resolved)
	}},
	{"RefusesAnythingButUnknown", func(f *fixture) {
		a := f.active(records.Registration{})
		running, orphan, done := f.claim(a.ID), f.orphaned(), f.claim(a.ID)
		f.finalize(done, outcome("done", long))
		for _, r := range []records.Record{running, orphan, f.load(done.ID).Record} {
			_, err := f.store.ResolveByOperator(f.Context(), intervention(r), outcome("found out", long))
			f.refused(err, records.ErrFenced)
			f.unchanged(r)
			f.equal("events", len(f.eventsOf(r.ID)), 0)
		}
	}},
	{"RefusesAnOutcomeThatCouldNeverBeStored", func(f *fixture) {
		r := f.unknown(f.active(records.Registration{}).ID)
		for what, o := range map[string]records.Outcome{
			"no status":     {Retention: long},
			"large headers": {Response: records.Response{Status: 200, Headers: []records.Header{{Value: strings.Repeat("v", records.MaxHeaderBytes)}}}},
			"a large body":  {Response: records.Response{Status: 200, Body: make([]byte, records.MaxBodyBytes+1)}},
			"no retention":  outcome("", -1),
		} {
			_, err := f.store.ResolveByOperator(f.Context(), intervention(r), o)
			f.refusedFor(what, err)
			f.unchanged(r)
		}
	}},
	{"AfterItTheOwnerOfBeforeWritesNothing", func(f *fixture) {
		a := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		got := f.resolved(f.load(r.ID).Record, outcome("found out", long))
		f.shutOut(r)
		f.refused(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long), records.ErrFenced)
		_, err := f.store.ClaimUnknown(f.Context(), claimOf(r, a.ID))
		f.refused(err, records.ErrFenced)
		f.unchanged(got)
	}},
	interventionRefuses("resolve", func(f *fixture, i records.Intervention) error {
		return errOf(f.store.ResolveByOperator(f.Context(), i, outcome("found out", long)))
	}),
	interventionRepeats(ResolveByOperator, func(f *fixture, s records.Store, i records.Intervention) (records.Record, error) {
		return s.ResolveByOperator(f.Context(), i, outcome("found out", long))
	}),
	{"AnotherOutcomeIsNoRepeat", func(f *fixture) {
		r := f.unknown(f.active(records.Registration{}).ID)
		first := f.resolved(r, outcome("found out", long))
		_, err := f.store.ResolveByOperator(f.Context(), intervention(r), outcome("found out otherwise", long))
		f.refused(err, records.ErrFenced)
		f.unchanged(first)
	}},
}}

// interventionRefuses is the rule about what was not seen, or cannot be noted.
func interventionRefuses(verb string, call func(*fixture, records.Intervention) error) rule {
	return rule{"RefusesWhatThePersonDidNotSeeTo" + strings.ToUpper(verb[:1]) + verb[1:], func(f *fixture) {
		r := f.unknown(f.active(records.Registration{}).ID)
		for _, epoch := range []int64{0, r.Epoch - 1, r.Epoch + 1} {
			i := intervention(r)
			i.Epoch = epoch
			f.refused(call(f, i), records.ErrFenced)
		}
		i := intervention(r)
		i.ID = reservation(r.Executor).ID
		f.refused(call(f, i), records.ErrNotFound)
		for what, spoil := range map[string]func(*records.Intervention){
			"no id":         func(i *records.Intervention) { i.ID = records.ID{} },
			"nobody":        func(i *records.Intervention) { i.Actor = "" },
			"a NUL name":    func(i *records.Intervention) { i.Actor = "a\x00" },
			"a long name":   func(i *records.Intervention) { i.Actor = strings.Repeat("a", 256) },
			"no reason":     func(i *records.Intervention) { i.Reason = " " },
			"a bad reason":  func(i *records.Intervention) { i.Reason = "\xff" },
			"a long reason": func(i *records.Intervention) { i.Reason = strings.Repeat("r", records.MaxReasonBytes+1) },
		} {
			i := intervention(r)
			spoil(&i)
			f.refusedFor(what, call(f, i))
		}
		f.unchanged(r)
		f.equal("events", len(f.eventsOf(r.ID)), 0)
	}}
}

// interventionRepeats is the rule about a reply that was lost: the same call
// finds its own row, another operator's does not, and one event is left.
func interventionRepeats(c Call, call func(*fixture, records.Store, records.Intervention) (records.Record, error)) rule {
	return rule{"KnowsItsOwnRowWhenItsReplyWasLost", func(f *fixture) {
		r, s := f.unknown(f.active(records.Registration{}).ID), f.faulty(c)
		f.refused(errOf(call(f, s, intervention(r))), records.ErrUnavailable)
		first := f.load(r.ID).Record
		f.equal("epoch", first.Epoch, r.Epoch+1)
		got, err := call(f, s, intervention(r))
		f.check(err)
		f.equal("record", got, first)
		other := intervention(r)
		other.Actor = "another operator"
		f.refused(errOf(call(f, f.store, other)), records.ErrFenced)
		f.unchanged(first)
		f.equal("events", len(f.eventsOf(r.ID)), 1)
	}}
}
