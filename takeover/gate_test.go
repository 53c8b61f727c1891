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
	recordstest.Note, recordstest.Events, recordstest.PurgeEvents,
	recordstest.ReleaseByOperator, recordstest.ResolveByOperator, recordstest.Erase,
}

// shut makes calls fail as those to an unreachable store do; all calls if none
// is named. The returned function heals them.
func (g *gate) shut(calls ...recordstest.Call) (heal func()) {
	return g.fail(recordstest.Down, func() {}, calls)
}

// freeze makes calls wait, as behind a lock or a link that is silent, until
// their context ends or they are healed, and then fail.
func (g *gate) freeze(calls ...recordstest.Call) (heal func()) {
	thaw := make(chan struct{})
	return g.fail(recordstest.Fault{Pause: thaw}, sync.OnceFunc(func() { close(thaw) }), calls)
}

func (g *gate) fail(f recordstest.Fault, thaw func(), calls []recordstest.Call) (heal func()) {
	if len(calls) == 0 {
		calls = everyCall
	}
	var stops []func()
	for _, c := range calls {
		stops = append(stops, g.Always(c, f))
	}
	heal = func() {
		for _, stop := range stops {
			stop()
		}
		thaw()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heal = append(g.heal, heal)
	return heal
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
