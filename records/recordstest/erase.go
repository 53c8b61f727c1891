package recordstest

import (
	"strings"

	"github.com/probate-dev/probate/records"
)

// erasure asks for all that the principal of reservation said.
func erasure() records.Erasure {
	return records.Erasure{Realm: "realm", Principal: "principal", Actor: "operator", Reason: "asked to", Limit: 10_000}
}

// person is a principal of a realm that no other rule knows.
func person() (realm, principal string) { return "realm\x00" + string(randomBytes(8)), "somebody\xff" }

// reservationOf asks for a key that this principal did not use before.
func reservationOf(realm, principal string, by records.ExecutorID) records.Reservation {
	r := reservation(by)
	r.Realm = realm
	r.ID = records.Key{Realm: realm, Principal: principal, Key: r.Key}.ID()
	r.Request = []byte("what was asked")
	return r
}

func erasureOf(realm, principal string) records.Erasure {
	e := erasure()
	e.Realm, e.Principal = realm, principal
	return e
}

// erases runs an erasure page by page, and returns what all pages did.
func (f *fixture) erases(e records.Erasure) (done records.Erased) {
	f.Helper()
	for {
		page, err := f.store.Erase(f.Context(), e)
		f.check(err)
		done.Count, done.Running = done.Count+page.Count, done.Running+page.Running
		if !page.More {
			f.equal("next after the last page", page.Next, records.ID{})
			return done
		}
		if page.Next.Compare(e.After) <= 0 {
			f.Fatal("an erasure does not move on")
		}
		e.After = page.Next
	}
}

// tombstone is what an erasure leaves of a record.
func tombstone(r records.Record) records.Record {
	r.Key, r.Resource, r.Request = "", "", nil
	if r.Response != nil {
		r.Response = &records.Response{Status: r.Response.Status}
	}
	return r
}

// endedOf claims a key of a principal's in each state but in progress.
func (f *fixture) endedOf(realm, principal string, by records.ExecutorID) []records.Record {
	f.Helper()
	var all []records.Record
	for _, end := range ends {
		r := f.reserve(reservationOf(realm, principal, by))
		f.check(end.write(f.Context(), f.store, r.ID, r.Fence()))
		all = append(all, f.load(r.ID).Record)
	}
	return all
}

var eraseRules = group{name: "Erase", alone: true, rules: []rule{
	{"LeavesTombstones", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		all := f.endedOf(realm, principal, a.ID)
		f.equal("erased", f.erases(erasureOf(realm, principal)), records.Erased{Count: len(all)})
		for _, r := range all {
			f.unchanged(tombstone(r))
		}
	}},
	{"ALateDuplicateDoesNotRunAgain", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		done, lost := reservationOf(realm, principal, a.ID), reservationOf(realm, principal, a.ID)
		f.finalize(f.reserve(done), outcome("secret", long))
		r := f.reserve(lost)
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		f.erases(erasureOf(realm, principal))
		for _, asked := range []records.Reservation{done, lost} {
			got, err := f.store.Reserve(f.Context(), again(asked, a.ID))
			f.check(err)
			f.equal("owned", got.Owned, false)
			f.equal("fingerprint", got.Record.Fingerprint, asked.Fingerprint)
		}
		held := f.load(done.ID).Record
		f.equal("response", held.Response, &records.Response{Status: 201})
	}},
	{"OfAnUnknownRecordThatIsResolvedOnlyTheStatusIsKept", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		r := f.reserve(reservationOf(realm, principal, a.ID))
		f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
		f.erases(erasureOf(realm, principal))
		o := outcome("found out", long)
		got, err := f.store.ResolveByOperator(f.Context(), intervention(f.load(r.ID).Record), o)
		f.check(err)
		f.equal("response", got.Response, &records.Response{Status: o.Response.Status})
		f.unchanged(got)
	}},
	{"LeavesAndCountsWhatIsInProgress", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		f.endedOf(realm, principal, a.ID)
		r := f.reserve(reservationOf(realm, principal, a.ID))
		f.equal("erased", f.erases(erasureOf(realm, principal)), records.Erased{Count: len(ends), Running: 1})
		f.unchanged(r)
		f.finalize(r, outcome("done", long))
		f.equal("erased then", f.erases(erasureOf(realm, principal)), records.Erased{Count: 1})
	}},
	{"LeavesOthersAlone", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		f.endedOf(realm, principal, a.ID)
		others := append(f.endedOf(realm, "somebody else", a.ID), f.endedOf("another realm", principal, a.ID)...)
		f.equal("erased", f.erases(erasureOf(realm, principal)).Count, len(ends))
		for _, r := range others {
			f.unchanged(r)
		}
	}},
	{"AKeyThatIsUsedAnewIsErasedAnew", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		asked := reservationOf(realm, principal, a.ID)
		f.finalize(f.reserve(asked), outcome("old", 0))
		f.equal("erased", f.erases(erasureOf(realm, principal)).Count, 1)
		f.elapse(Grace)
		f.finalize(f.reserve(again(asked, a.ID)), outcome("new", long))
		f.equal("erased again", f.erases(erasureOf(realm, principal)).Count, 1)
	}},
	{"RepeatedItFindsNothing", func(f *fixture) {
		a, s := f.active(records.Registration{}), f.faulty(Erase)
		realm, principal := person()
		f.endedOf(realm, principal, a.ID)
		f.refused(errOf(s.Erase(f.Context(), erasureOf(realm, principal))), records.ErrUnavailable)
		f.equal("erased", f.erases(erasureOf(realm, principal)), records.Erased{})
	}},
	{"GoesPageByPage", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		var all []records.Record
		for range 4 {
			all = append(all, f.endedOf(realm, principal, a.ID)...)
			f.endedOf("another realm", principal, a.ID)
		}
		e := erasureOf(realm, principal)
		e.Limit = 5
		f.equal("erased", f.erases(e).Count, len(all))
		for _, r := range all {
			f.unchanged(tombstone(r))
		}
	}},
	{"ManyAreErasedInTheEnd", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		const many = 600
		errs := atOnce(many, func(int) error {
			got, err := f.store.Reserve(f.Context(), reservationOf(realm, principal, a.ID))
			if err != nil {
				return err
			}
			return f.store.Release(f.Context(), got.Record.ID, got.Record.Fence())
		})
		for _, err := range errs {
			f.check(err)
		}
		f.equal("erased", f.erases(erasureOf(realm, principal)), records.Erased{Count: many})
	}},
	{"LeavesAnEventThatDoesNotSayWhose", func(f *fixture) {
		a := f.active(records.Registration{})
		realm, principal := person()
		f.endedOf(realm, principal, a.ID)
		f.reserve(reservationOf(realm, principal, a.ID))
		e := erasureOf(realm, principal)
		f.erases(e)
		got := dateless(f.events(records.EventFilter{Kind: records.EventErased, Limit: 10}))
		want := e.Note(records.Erased{Count: len(ends), Running: 1})
		f.equal("events", got, []records.Event{{Kind: records.EventErased, Actor: "operator", Reason: want}})
		if strings.Contains(want, principal) || !strings.Contains(want, records.PrincipalRef(realm, principal)) {
			f.Errorf("the event says %q", want)
		}
	}},
	{"ThatFindsNothingLeavesOneEventOnItsLastPage", func(f *fixture) {
		a := f.active(records.Registration{})
		f.endedOf("another realm", "principal", a.ID)
		e := erasure()
		e.Limit = 1
		f.equal("erased", f.erases(e), records.Erased{})
		f.equal("events", len(f.events(records.EventFilter{Kind: records.EventErased, Limit: 10})), 1)
	}},
	{"IsSeenByTheNextHeartbeatOfEveryNode", func(f *fixture) {
		a, other := f.active(records.Registration{}), f.open(f)
		realm, principal := person()
		before := f.beat(a.ID).Erasures
		f.erases(erasureOf(realm, principal)) // nothing was erased
		f.equal("erasures", f.beat(a.ID).Erasures, before)
		f.endedOf(realm, principal, a.ID)
		f.erases(erasureOf(realm, principal))
		got, err := other.Heartbeat(f.Context(), a.ID)
		f.check(err)
		f.equal("erasures", got.Erasures, before+1)
	}},
	{"RefusesWhatCouldNeverBeDone", func(f *fixture) {
		for what, spoil := range map[string]func(*records.Erasure){
			"nobody":           func(e *records.Erasure) { e.Actor = "" },
			"no reason":        func(e *records.Erasure) { e.Reason = "\n" },
			"a bad reason":     func(e *records.Erasure) { e.Reason = "\x00" },
			"no limit":         func(e *records.Erasure) { e.Limit = 0 },
			"a large limit":    func(e *records.Erasure) { e.Limit = 10_001 },
			"a long realm":     func(e *records.Erasure) { e.Realm = strings.Repeat("r", records.MaxFieldBytes+1) },
			"a long principal": func(e *records.Erasure) { e.Principal = strings.Repeat("p", records.MaxFieldBytes+1) },
		} {
			e := erasure()
			spoil(&e)
			_, err := f.store.Erase(f.Context(), e)
			f.refusedFor(what, err)
		}
		f.equal("events", len(f.events(records.EventFilter{Limit: 10})), 0)
	}},
}}
