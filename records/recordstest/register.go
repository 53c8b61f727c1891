package recordstest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

var registerRules = group{name: "Register", rules: []rule{
	{"AddsAnActiveExecutorAsDescribed", func(f *fixture) {
		asked := registration(records.Registration{Slot: "näher am Meer/" + newExecutorID().String(), LeaseTTL: 1234567 * time.Microsecond})
		got, err := f.store.Register(f.Context(), asked)
		f.check(err)
		f.equal("registration of the row", describe(got), asked)
		f.equal("state", got.State, records.Active)
		if !got.AttestedAt.IsZero() || got.Attested(long) || !got.FencedAt.IsZero() {
			f.Errorf("a new executor is attested at %s, fenced at %s", got.AttestedAt, got.FencedAt)
		}
		f.equal("row read back", ageless(f.executor(got.ID)), ageless(got))
		next := f.beat(got.ID)
		if got.HeartbeatAt.IsZero() || got.LeaseSince.IsZero() || got.LeaseSince.After(next.HeartbeatAt) {
			f.Errorf("heartbeat at %s, lease since %s: want its run to begin with the registration", got.HeartbeatAt, got.LeaseSince)
		}
	}},
	{"RepeatedItReturnsTheRow", func(f *fixture) {
		r := registration(records.Registration{})
		f.active(r)
		before := f.beat(r.ID)
		again, err := f.store.Register(f.Context(), r)
		f.check(err)
		f.equal("row", ageless(again), ageless(before))
	}},
	{"NeverRevivesAFencedBoot", func(f *fixture) {
		r := registration(records.Registration{})
		f.fenced(r)
		again, err := f.store.Register(f.Context(), r)
		f.check(err)
		f.equal("state", again.State, records.Fenced)
		f.equal("state read back", f.executor(r.ID).State, records.Fenced)
	}},
	{"NeverRevivesABootThatLeft", func(f *fixture) {
		r := registration(records.Registration{})
		f.gone(r)
		again, err := f.store.Register(f.Context(), r)
		f.check(err)
		f.equal("state", again.State, records.Gone)
	}},
	{"RefusesASlotThatAnotherBootHolds", func(f *fixture) {
		holder := f.active(records.Registration{})
		f.refusesSlot(holder, records.Sighting{})
	}},
	{"ADrainingBootHoldsItsSlot", func(f *fixture) {
		holder := f.draining(records.Registration{})
		holder = f.executor(holder.ID)
		f.refusesSlot(holder, records.Sighting{})
	}},
	{"RefusesTheSightingOfAnotherBoot", func(f *fixture) {
		holder := f.active(records.Registration{})
		other := f.active(records.Registration{})
		f.refusesSlot(holder, records.Sighting{Executor: other.ID, Beat: other.Beat})
		f.equal("other boot's state", f.executor(other.ID).State, records.Active)
	}},
	{"ABeatAfterTheSightingRefutesIt", func(f *fixture) {
		seen := f.active(records.Registration{})
		holder := f.beat(seen.ID)
		f.refusesSlot(holder, records.Sighting{Executor: seen.ID, Beat: seen.Beat})
	}},
	{"ALeaseThatRunsProtectsItsHolder", func(f *fixture) {
		holder := f.active(records.Registration{Policy: records.PolicyLease})
		f.refusesSlot(holder, sighting(holder))
	}},
	{"AnExpiredLeaseDoesNot", func(f *fixture) {
		holder := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: 20 * time.Millisecond})
		f.elapse(20 * time.Millisecond)
		f.replaces(holder, holder.Slot)
	}},
	{"FencesTheSilentHolderUnderPolicyProbe", func(f *fixture) {
		holder := f.active(records.Registration{})
		f.replaces(holder, holder.Slot)
	}},
	{"FencesADrainingHolderToo", func(f *fixture) {
		holder := f.draining(records.Registration{})
		f.replaces(holder, holder.Slot)
	}},
	{"ATerminalBootHoldsNoSlot", func(f *fixture) {
		for _, holder := range []records.Executor{f.fenced(records.Registration{}), f.gone(records.Registration{})} {
			next := f.active(records.Registration{Slot: holder.Slot})
			f.equal("state", next.State, records.Active)
			last := f.active(records.Registration{Slot: f.fencedNow(next).Slot, Replaces: sighting(next)})
			f.equal("state after a sighting that was fenced meanwhile", last.State, records.Active)
		}
	}},
	{"LeavesASightingInAnotherSlotAlone", func(f *fixture) {
		other := f.active(records.Registration{})
		f.active(records.Registration{Replaces: sighting(other)})
		f.equal("state", f.executor(other.ID).State, records.Active)
	}},
	{"ItsFenceIsNotBraked", func(f *fixture) {
		boot := f.active(records.Registration{})
		for range 3 {
			boot = f.replaces(boot, boot.Slot)
		}
	}},
	{"OneOfManyWinsASlot", func(f *fixture) {
		slot := "slot-" + newExecutorID().String()
		f.oneWinsTheSlot(slot, records.Sighting{})
	}},
	{"OneOfManyReplacesASilentBoot", func(f *fixture) {
		holder := f.active(records.Registration{})
		f.oneWinsTheSlot(holder.Slot, sighting(holder))
		f.equal("holder's state", f.executor(holder.ID).State, records.Fenced)
	}},
}}

// describe is what the row says a registration was.
func describe(e records.Executor) records.Registration {
	return records.Registration{
		ID: e.ID, Slot: e.Slot, URL: e.URL, PublicKey: e.PublicKey, Policy: e.Policy, LeaseTTL: e.LeaseTTL,
	}
}

// ageless is the row without what changes as it is looked at.
func ageless(e records.Executor) records.Executor {
	e.HeartbeatAge, e.AttestedAge = 0, 0
	return e
}

func sighting(e records.Executor) records.Sighting {
	return records.Sighting{Executor: e.ID, Beat: e.Beat}
}

func (f *fixture) fencedNow(e records.Executor) records.Executor {
	f.Helper()
	f.fence(e.ID)
	return f.executor(e.ID)
}

// refusesSlot demands that a registration for the holder's slot changes
// nothing and names the holder.
func (f *fixture) refusesSlot(holder records.Executor, seen records.Sighting) {
	f.Helper()
	r := registration(records.Registration{Slot: holder.Slot, Replaces: seen})
	_, err := f.store.Register(f.Context(), r)
	f.refused(err, records.ErrSlotTaken)
	taken, ok := errors.AsType[*records.SlotTakenError](err)
	if !ok {
		f.Fatalf("error %v carries no holder", err)
	}
	f.equal("holder in the error", ageless(taken.Holder), ageless(holder))
	f.equal("holder", ageless(f.executor(holder.ID)), ageless(holder))
	_, err = f.store.LoadExecutor(f.Context(), r.ID)
	f.refused(err, records.ErrNotFound)
}

// replaces demands that a new boot in the slot fences the holder.
func (f *fixture) replaces(holder records.Executor, slot string) records.Executor {
	f.Helper()
	next := f.active(records.Registration{Slot: slot, Replaces: sighting(holder)})
	f.equal("state of the new boot", next.State, records.Active)
	old := f.executor(holder.ID)
	f.equal("state of the old boot", old.State, records.Fenced)
	f.equal("old boot fenced by", old.FencedBy, next.ID)
	f.equal("reason", old.FencedReason, "replaced by a new boot of its slot")
	if old.FencedAt.IsZero() {
		f.Error("the old boot's fence has no time")
	}
	return next
}

// oneWinsTheSlot lets several boots on several nodes register for one slot at
// once.
func (f *fixture) oneWinsTheSlot(slot string, seen records.Sighting) {
	f.Helper()
	var winners atomic.Int32
	var wg sync.WaitGroup
	for _, s := range f.nodes(2) {
		for range 4 {
			wg.Go(func() {
				_, err := s.Register(f.Context(), registration(records.Registration{Slot: slot, Replaces: seen}))
				switch {
				case err == nil:
					winners.Add(1)
				case !errors.Is(err, records.ErrSlotTaken):
					f.Errorf("loser's error = %v, want ErrSlotTaken", err)
				}
			})
		}
	}
	wg.Wait()
	if n := winners.Load(); n != 1 {
		f.Errorf("%d boots won the slot, want 1", n)
	}
}
