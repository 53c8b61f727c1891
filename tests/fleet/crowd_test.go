//go:build unix

package fleet_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/tests/fleet"
)

func k51(t *testing.T) {
	f := newFleet(t)
	nodes := f.Start(t, "a", "b", "c")
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
	nodes[0].Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)
	crowd := gather(t, nodes[1:], 100, fleet.Ask{})

	before := cost(t, nodes[1:])
	nodes[0].Kill()
	took := 0
	for _, c := range crowd {
		if got := c.Answer(t); got.Outcome == "taken_over" {
			took++
			got.Check(t, "taken_over", "entry 1 under k")
		} else {
			got.Check(t, "waited", "entry 1 under k")
		}
	}
	if took != 1 {
		t.Errorf("%d take-overs", took)
	}
	finalized(t, f, "k", "entry 1 under k")
	// What a node asks and reads may depend on how the machine lags, and not
	// on how many wait.
	for i, after := range cost(t, nodes[1:]) {
		if asked := after.asked - before[i].asked; asked > 20 {
			t.Errorf("%s asked other nodes %d times", nodes[1+i].Spec.Slot, asked)
		}
		if reads := after.reads - before[i].reads; reads > 20 {
			t.Errorf("%s read the store %d times", nodes[1+i].Spec.Slot, reads)
		}
	}
}

// gather has duplicates of k wait, so many on each node.
func gather(t testing.TB, nodes []*fleet.Node, each int, a fleet.Ask) []*fleet.Call {
	t.Helper()
	var crowd []*fleet.Call
	for _, n := range nodes {
		for range each {
			crowd = append(crowd, n.Call(t, "k", a))
		}
	}
	for _, n := range nodes {
		waits(t, n, each)
	}
	return crowd
}

// expense is what duplicates cost a node: questions to others, and reads of
// and claims in the store.
type expense struct{ asked, reads int }

func cost(t testing.TB, nodes []*fleet.Node) []expense {
	t.Helper()
	all := make([]expense, len(nodes))
	for i, n := range nodes {
		s := n.Stats(t)
		for _, count := range s.Asked {
			all[i].asked += count
		}
		all[i].reads = s.Statements["load"] + s.Statements["reserve"] + s.Statements["claim"]
	}
	return all
}

// TestClient is about clients that do not stay.
func TestClient(t *testing.T) {
	t.Parallel()
	t.Run("OneThatHangsUpCancelsNothing", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.Start(t, "a", "b")
		hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
		first := nodes[0].Call(t, "k", fleet.Ask{})
		hold.Await(t, 1)
		first.HangUp()
		hold.Release()
		fleet.Await(t, "the response is stored", func() bool { return f.Store.Record(t, "k").State == records.Finalized })
		finalized(t, f, "k", "entry 1 under k")
		nodes[1].Call(t, "k", fleet.Ask{}).Answer(t).Check(t, "replayed", "entry 1 under k")
	})

	t.Run("AWaiterThatHangsUpCancelsNeitherTheOwnerNorTheOthers", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.Start(t, "a", "b")
		hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
		first := nodes[0].Call(t, "k", fleet.Ask{})
		hold.Await(t, 1)
		crowd := gather(t, nodes, 3, fleet.Ask{})
		for i := 0; i < len(crowd); i += 3 { // on each node, the one that came first
			crowd[i].HangUp()
		}
		for _, n := range nodes {
			waits(t, n, 2)
		}
		hold.Release()
		first.Answer(t).Check(t, "executed", "entry 1 under k")
		for i, c := range crowd {
			if i%3 != 0 {
				c.Answer(t).Check(t, "waited", "entry 1 under k")
			}
		}
		finalized(t, f, "k", "entry 1 under k")
	})
}
