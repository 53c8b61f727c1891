package recordstest

import (
	"github.com/probate-dev/probate/records"
)

// lostReplyRules: a call whose reply was lost is recognised when it is
// repeated with the same arguments. It has its effect once.
var lostReplyRules = group{name: "LostReply", rules: []rule{
	{"OfARegistration", func(f *fixture) {
		s, r := f.faulty(Register), registration(records.Registration{})
		f.refused(errOf(s.Register(f.Context(), r)), records.ErrUnavailable)
		got, err := s.Register(f.Context(), r)
		f.check(err)
		f.equal("row", ageless(got), ageless(f.executor(r.ID)))
	}},
	{"OfARegistrationThatFencedItsPredecessor", func(f *fixture) {
		old := f.active(records.Registration{})
		s, r := f.faulty(Register), registration(records.Registration{Slot: old.Slot, Replaces: sighting(old)})
		f.refused(errOf(s.Register(f.Context(), r)), records.ErrUnavailable)
		got, err := s.Register(f.Context(), r)
		f.check(err)
		f.equal("state", got.State, records.Active)
		f.equal("old boot's state", f.executor(old.ID).State, records.Fenced)
	}},
	{"OfDrainAndRetire", func(f *fixture) {
		e, s := f.active(records.Registration{}), f.faulty(Drain, Retire)
		f.refused(s.Drain(f.Context(), e.ID), records.ErrUnavailable)
		f.check(s.Drain(f.Context(), e.ID))
		f.refused(s.Retire(f.Context(), e.ID), records.ErrUnavailable)
		f.check(s.Retire(f.Context(), e.ID))
		f.equal("state", f.executor(e.ID).State, records.Gone)
	}},
	{"OfAReservation", func(f *fixture) {
		a := f.active(records.Registration{})
		s, r := f.faulty(Reserve), reservation(a.ID)
		f.refused(errOf(s.Reserve(f.Context(), r)), records.ErrUnavailable)
		first := f.load(r.ID).Record
		got, err := s.Reserve(f.Context(), r)
		f.check(err)
		f.equal("owned", got.Owned, true)
		f.equal("record", got.Record, first)
	}},
	{"OfAReservationThatSomebodyElseRepeats", func(f *fixture) {
		a := f.active(records.Registration{})
		s, r := f.faulty(Reserve), reservation(a.ID)
		f.refused(errOf(s.Reserve(f.Context(), r)), records.ErrUnavailable)
		got, err := s.Reserve(f.Context(), again(r, a.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
	}},
	{"OfATakeOver", func(f *fixture) {
		a, s := f.active(records.Registration{}), f.faulty(TakeOver)
		r := f.claim(a.ID)
		f.fence(a.ID)
		t := takeOver(r, f.active(records.Registration{}).ID)
		f.refused(errOf(s.TakeOver(f.Context(), t)), records.ErrUnavailable)
		first := f.load(r.ID).Record
		got, err := s.TakeOver(f.Context(), t)
		f.check(err)
		f.equal("record", got, first)
		f.equal("epoch", got.Epoch, r.Epoch+1)
		f.equal("take-overs", got.Takeovers, 1)
	}},
	{"OfAClaimOfAnUnknownRecord", func(f *fixture) {
		a, s := f.active(records.Registration{}), f.faulty(ClaimUnknown)
		r := f.unknown(a.ID)
		c := claimOf(r, a.ID)
		f.refused(errOf(s.ClaimUnknown(f.Context(), c)), records.ErrUnavailable)
		first := f.load(r.ID).Record
		got, err := s.ClaimUnknown(f.Context(), c)
		f.check(err)
		f.equal("record", got, first)
		f.equal("epoch", got.Epoch, r.Epoch+1)
	}},
	{"OfEachEndOfAClaim", func(f *fixture) {
		a, s := f.active(records.Registration{}), f.faulty(Finalize, Release, MarkUnknown)
		for _, e := range ends {
			r := f.claim(a.ID)
			f.refused(e.write(f.Context(), s, r.ID, r.Fence()), records.ErrUnavailable)
			first := f.load(r.ID).Record
			f.check(e.write(f.Context(), s, r.ID, r.Fence()))
			f.unchanged(first)
		}
	}},
	{"OfAHeartbeatCostsABeatAndNothingElse", func(f *fixture) {
		e, s := f.active(records.Registration{}), f.faulty(Heartbeat)
		f.refused(errOf(s.Heartbeat(f.Context(), e.ID)), records.ErrUnavailable)
		got, err := s.Heartbeat(f.Context(), e.ID)
		f.check(err)
		f.equal("beat", got.Beat, e.Beat+2)
	}},
}}

// faulty is the node's store, which loses the next reply of each call named.
func (f *fixture) faulty(calls ...Call) *Faulty {
	s := NewFaulty(f.store)
	for _, c := range calls {
		s.Once(c, LostReply)
	}
	return s
}
