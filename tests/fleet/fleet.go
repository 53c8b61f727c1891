//go:build unix

package fleet

import (
	"testing"

	"github.com/probate-dev/probate/records"
)

// Fleet is several nodes over one store, and the service behind them.
type Fleet struct {
	Base   Spec // of every node; Slot is set for each
	Ledger *Ledger
	Store  Sight

	program Program
	nodes   map[string]*Node
}

// New makes a fleet without nodes over a migrated database.
func New(t testing.TB, program Program, dsn string, times Times) *Fleet {
	t.Helper()
	f := &Fleet{Ledger: NewLedger(t), Store: Look(t, dsn), program: program, nodes: map[string]*Node{}}
	f.Base = Spec{
		DSN: dsn, Cluster: "test", Public: "127.0.0.1:0", Internal: "127.0.0.1:0",
		Ledger: f.Ledger.URL, Times: times,
	}
	return f
}

// Start starts a node for each slot, all at once, and returns when the fleet
// is warm.
func (f *Fleet) Start(t testing.TB, slots ...string) []*Node {
	t.Helper()
	specs := make([]Spec, len(slots))
	for i, slot := range slots {
		specs[i] = f.Base
		specs[i].Slot = slot
	}
	return f.StartAs(t, specs...)
}

// StartAs is Start with every node's own specification.
func (f *Fleet) StartAs(t testing.TB, specs ...Spec) []*Node {
	t.Helper()
	nodes := make([]*Node, len(specs))
	for i, s := range specs {
		nodes[i] = Launch(t, f.program, s)
		f.nodes[s.Slot] = nodes[i]
	}
	f.Warm(t)
	return nodes
}

// Restart starts a node that has ended anew, in its place, and returns at
// once.
func (f *Fleet) Restart(t testing.TB, n *Node) *Node {
	t.Helper()
	again := n.Restart(t)
	f.nodes[n.Spec.Slot] = again
	return again
}

// Warm waits until every living node serves, a peer has reached it at its URL,
// and all know each other: each has beaten twice since.
func (f *Fleet) Warm(t testing.TB) {
	t.Helper()
	living := map[string]*Node{}
	for slot, n := range f.nodes {
		if !n.Ended() {
			living[slot] = n
		}
	}
	serving := func(e records.Executor) bool {
		n := living[e.Slot]
		if n == nil || e.State != records.Active || len(living) > 1 && e.AttestedAt.IsZero() {
			return false
		}
		h, err := n.Health(t.Context())
		return err == nil && h.Ready && h.Executor == e.ID.String()
	}
	var beats map[string]int64
	Await(t, "the fleet serves", func() bool {
		beats = map[string]int64{}
		for _, e := range f.Store.Executors(t) {
			if serving(e) {
				beats[e.Slot] = e.Beat
			}
		}
		return len(beats) == len(living)
	})
	if len(living) < 2 {
		return
	}
	Await(t, "all know each other", func() bool {
		known := 0
		for _, e := range f.Store.Executors(t) {
			if seen, ok := beats[e.Slot]; ok && e.State == records.Active && e.Beat >= seen+2 {
				known++
			}
		}
		return known == len(living)
	})
}
