package recordstest

import (
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// The brake: within one lease a fleet may lose half of those that live, and
// one in any case.
var brakeRules = group{name: "Brake", alone: true, rules: []rule{
	brakeOf(2, 1), brakeOf(3, 1), brakeOf(4, 1), brakeOf(5, 2), brakeOf(6, 2),
	{"CountsTheFleetAndNotTheObserver", func(f *fixture) {
		fleet := f.fleet(4)
		f.fences(probed(fleet[0], fleet[2]))
		f.sparesFor(probed(fleet[1], fleet[3]), records.ErrBraked)
	}},
	{"CountsThoseThatDrainAmongTheLiving", func(f *fixture) {
		fleet := f.fleet(5)
		for _, e := range fleet[2:4] {
			f.check(f.store.Drain(f.Context(), e.ID))
		}
		f.fences(probed(fleet[0], fleet[4]))
		f.fences(probed(fleet[1], fleet[4]))
	}},
	{"DoesNotCountThoseThatLeft", func(f *fixture) {
		fleet := f.fleet(5)
		for _, e := range fleet[2:4] {
			f.check(f.store.Drain(f.Context(), e.ID))
			f.check(f.store.Retire(f.Context(), e.ID))
		}
		f.fences(probed(fleet[0], fleet[4]))
		f.sparesFor(probed(fleet[1], fleet[4]), records.ErrBraked)
	}},
	{"LetsGoAfterTheSuspectsLease", func(f *fixture) {
		observer := f.active(records.Registration{})
		first := f.active(records.Registration{})
		second := f.active(records.Registration{LeaseTTL: 20 * time.Millisecond})
		f.fences(probed(first, observer))
		f.elapse(20 * time.Millisecond)
		f.fences(probed(second, observer))
	}},
	{"TwoNodesCannotFenceEachOther", func(f *fixture) {
		f.oneFenceLands(f.fleet(2))
	}},
	{"OfARingOfFencesOneLands", func(f *fixture) {
		f.oneFenceLands(f.fleet(3))
	}},
}}

// brakeOf says how many of a fleet one observer may fence within a lease.
func brakeOf(size, want int) rule {
	return rule{fmt.Sprintf("OfAFleetOf%dItLosesAtMost%d", size, want), func(f *fixture) {
		fleet := f.fleet(size)
		observer := fleet[size-1]
		for n, suspect := range fleet[:size-1] {
			if n < want {
				f.fences(probed(suspect, observer))
			} else {
				f.sparesFor(probed(suspect, observer), records.ErrBraked)
			}
		}
	}}
}

func (f *fixture) fleet(size int) []records.Executor {
	f.Helper()
	fleet := make([]records.Executor, size)
	for i := range fleet {
		fleet[i] = f.active(records.Registration{})
	}
	return fleet
}

// oneFenceLands lets each executor fence the next one, from a node of its own,
// all at once. Whoever comes first is the only one: the brake is full, and in
// a fleet of two the other observer is dead.
func (f *fixture) oneFenceLands(fleet []records.Executor) {
	f.Helper()
	nodes := f.nodes(len(fleet))
	errs := atOnce(len(fleet), func(i int) error {
		_, err := nodes[i].Fence(f.Context(), probed(fleet[(i+1)%len(fleet)], fleet[i]))
		return err
	})
	landed := 0
	for _, err := range errs {
		switch {
		case err == nil:
			landed++
		case !isAny(err, records.ErrBraked, records.ErrObserverUnfit):
			f.Errorf("refused with %v", err)
		}
	}
	fenced, err := f.store.ListExecutors(f.Context(), records.Fenced)
	f.check(err)
	if landed != 1 || len(fenced) != 1 {
		f.Errorf("%d fences landed, %d executors are fenced, want 1 and 1", landed, len(fenced))
	}
}
