package takeover_test

import (
	"sync"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
)

// gate is one node's way to the store. It counts what passes, and it can be
// shut, or frozen, for all calls or for some.
type gate struct {
	*recordstest.Faulty

	mu   sync.Mutex
	heal []func()
}

func newGate(s records.Store) *gate { return &gate{Faulty: recordstest.NewFaulty(s)} }

// everyCall are the methods of a store that a node uses.
var everyCall = []recordstest.Call{
	recordstest.Register, recordstest.Heartbeat, recordstest.Drain, recordstest.Retire, recordstest.Attest,
	recordstest.LoadExecutor, recordstest.ListExecutors, recordstest.Fence, recordstest.PurgeExecutors,
	recordstest.Reserve, recordstest.Load, recordstest.TakeOver, recordstest.ClaimUnknown,
	recordstest.Finalize, recordstest.Release, recordstest.MarkUnknown,
	recordstest.InProgress, recordstest.Orphans, recordstest.Purge,
}

// shut makes calls fail as those to an unreachable store do; all calls if none
// is named.
func (g *gate) shut(calls ...recordstest.Call) { g.fail(recordstest.Down, nil, calls) }

// freeze makes calls wait, as behind a lock or a link that is silent, until
// their context ends or the gate opens, and then fail.
func (g *gate) freeze(calls ...recordstest.Call) {
	thaw := make(chan struct{})
	g.fail(recordstest.Fault{Pause: thaw}, sync.OnceFunc(func() { close(thaw) }), calls)
}

func (g *gate) fail(f recordstest.Fault, healed func(), calls []recordstest.Call) {
	if len(calls) == 0 {
		calls = everyCall
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		g.heal = append(g.heal, g.Always(c, f))
	}
	if healed != nil {
		g.heal = append(g.heal, healed)
	}
}

// openAgain ends whatever shut and freeze began.
func (g *gate) openAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, heal := range g.heal {
		heal()
	}
	g.heal = nil
}

// statements counts calls, of the given methods or of all.
func (g *gate) statements(calls ...recordstest.Call) (total int) {
	if len(calls) == 0 {
		calls = everyCall
	}
	for _, c := range calls {
		total += g.Calls(c)
	}
	return total
}
