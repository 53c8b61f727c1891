package recordstest

import (
	"errors"

	"github.com/probate-dev/probate/records"
)

// interventionRaceRules: of an operator and whoever else reaches for the same
// record at the same time, one wins, and the other changes nothing.
var interventionRaceRules = group{name: "InterventionRace", alone: true, rules: []rule{
	{"OneOfManyOperatorsResolves", func(f *fixture) {
		nodes, a := f.nodes(3), f.active(records.Registration{})
		for range 4 {
			r := f.unknown(a.ID)
			f.oneLands(r, atOnce(8, func(i int) error {
				mine := intervention(r)
				mine.Actor = "operator " + string(rune('a'+i))
				if i%2 == 0 {
					return errOf(nodes[i%3].ReleaseByOperator(f.Context(), mine))
				}
				return errOf(nodes[i%3].ResolveByOperator(f.Context(), mine, outcome(mine.Actor, long)))
			}))
		}
	}},
	{"AnOperatorAgainstReconcilers", func(f *fixture) {
		nodes, a := f.nodes(3), f.active(records.Registration{})
		for range 6 {
			r := f.unknown(a.ID)
			errs := atOnce(6, func(i int) error {
				switch i {
				case 0:
					return errOf(nodes[0].ResolveByOperator(f.Context(), intervention(r), outcome("found out", long)))
				case 1:
					return errOf(nodes[1].ReleaseByOperator(f.Context(), intervention(r)))
				}
				return errOf(nodes[i%3].ClaimUnknown(f.Context(), claimOf(r, a.ID)))
			})
			f.oneLands(r, errs)
		}
	}},
	{"AReleaseAgainstATakeOver", func(f *fixture) {
		nodes, b := f.nodes(3), f.active(records.Registration{})
		for range 6 {
			r := f.orphaned()
			f.oneLands(r, atOnce(4, func(i int) error {
				if i == 0 {
					return errOf(nodes[0].ReleaseByOperator(f.Context(), intervention(r)))
				}
				return errOf(nodes[i%3].TakeOver(f.Context(), takeOver(r, b.ID)))
			}))
		}
	}},
	{"AReleaseAgainstTheFencedOwnersLastWrite", func(f *fixture) {
		nodes := f.nodes(2)
		for _, end := range ends {
			for range 3 {
				r := f.orphaned()
				errs := atOnce(2, func(i int) error {
					if i == 0 {
						return errOf(nodes[0].ReleaseByOperator(f.Context(), intervention(r)))
					}
					return end.write(f.Context(), nodes[1], r.ID, r.Fence())
				})
				if end.state == records.Unknown && errs[0] == nil && errs[1] == nil {
					// What the owner gave up, the operator then released.
					f.equal("state", f.load(r.ID).Record.State, records.Released)
					continue
				}
				f.oneLands(r, errs)
			}
		}
	}},
	{"AResolutionAgainstThePurgeAndANewClaim", func(f *fixture) {
		nodes, a := f.nodes(3), f.active(records.Registration{})
		for range 4 {
			asked := reservation(a.ID)
			r := f.reserve(asked)
			f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), 0))
			f.elapse(Grace)
			var resolved, claimed records.Record
			errs := atOnce(3, func(i int) (err error) {
				switch i {
				case 0:
					resolved, err = nodes[0].ResolveByOperator(f.Context(), intervention(r), outcome("found out", long))
				case 1:
					var got records.Reserved
					got, err = nodes[1].Reserve(f.Context(), again(asked, a.ID))
					if got.Owned {
						claimed = got.Record
					}
				case 2:
					_, err = nodes[2].Purge(f.Context(), 1000)
				}
				return err
			})
			if !isAny(errs[0], nil, records.ErrFenced, records.ErrNotFound) {
				f.Errorf("the resolution says %v", errs[0])
			}
			f.check(errs[1])
			f.check(errs[2])
			f.onlyOne(resolved, claimed)
		}
	}},
	{"AnErasureAgainstClaimsAndEnds", func(f *fixture) {
		nodes, a := f.nodes(3), f.active(records.Registration{})
		realm, principal := person()
		keys := make([]records.Reservation, 12)
		for i := range keys {
			keys[i] = reservationOf(realm, principal, a.ID)
			r := f.reserve(keys[i])
			f.check(f.store.Release(f.Context(), r.ID, r.Fence()))
		}
		for range 4 {
			errs := atOnce(len(keys)+2, func(i int) error {
				if i >= len(keys) {
					return errOf(nodes[i%3].Erase(f.Context(), erasureOf(realm, principal)))
				}
				got, err := nodes[i%3].Reserve(f.Context(), again(keys[i], a.ID))
				if err != nil {
					return err
				}
				return nodes[i%3].Release(f.Context(), got.Record.ID, got.Record.Fence())
			})
			for _, err := range errs {
				f.check(err)
			}
		}
		f.erases(erasureOf(realm, principal))
		for _, k := range keys {
			r := f.load(k.ID).Record
			f.equal("what is left", r, tombstone(r))
			f.isNewClaim(f.reserve(again(k, a.ID)), r)
		}
	}},
}}

// oneLands demands that exactly one of those who reached for the record got it,
// that the others were told so, and that the epoch grew once at most.
func (f *fixture) oneLands(before records.Record, errs []error) {
	f.Helper()
	landed := 0
	for _, err := range errs {
		switch {
		case err == nil:
			landed++
		case !errors.Is(err, records.ErrFenced):
			f.Errorf("refused with %v", err)
		}
	}
	f.equal("landed", landed, 1)
	after := f.load(before.ID).Record
	if after.Epoch > before.Epoch+1 {
		f.Errorf("epoch went from %d to %d", before.Epoch, after.Epoch)
	}
	byHand := 0
	for _, e := range f.eventsOf(before.ID) {
		if e.Epoch != after.Epoch || e.After != string(after.State) {
			f.Errorf("the audit says %s at %d, the record is %s at %d", e.After, e.Epoch, after.State, after.Epoch)
		}
		byHand++
	}
	if byHand > 1 {
		f.Errorf("%d events of one intervention", byHand)
	}
}

// onlyOne demands that a record was either resolved or claimed anew, and
// stands so.
func (f *fixture) onlyOne(resolved, claimed records.Record) {
	f.Helper()
	switch {
	case resolved.Epoch != 0 && claimed.Epoch != 0:
		f.Errorf("resolved at %d and claimed at %d", resolved.Epoch, claimed.Epoch)
	case resolved.Epoch != 0:
		f.unchanged(resolved)
	case claimed.Epoch != 0:
		f.unchanged(claimed)
	default:
		f.Error("neither was the record resolved nor claimed")
	}
}
