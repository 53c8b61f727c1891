// Package recordstest says in tests what a [records.Store] must do. Every
// store of the project passes it; a new one is done when it does.
//
// # Promises
//
// [Run] checks each sentence of the Store contract and each decision of the
// protocol as a rule of its own, named for what it demands, over databases
// made fresh by the caller. The recorded cases (Case/K03_…), the invariants
// (Invariant/I1_…) under real concurrency and a random walk against a pure
// model of the contract are part of it. No rule depends on how fast anything
// is: where time must pass, it is the database's clock that is watched.
//
// [Faulty] makes a chosen call of any store fail, before or after it took
// effect, for the tests of those who use a store. [Benchmark] drives any store
// with a number of requests in flight.
//
// # Not promised
//
// Nothing here looks at tables or statements. How a store does it, what it
// costs and whether its statements keep their plans are its own tests' work.
//
// # Imports
//
// Package records, testing, go-cmp and rapid.
//
// # Reading order
//
// suite.go (how rules run), fixture.go (what they work with), then one file a
// subject: register.go, heartbeat.go, fence.go, brake.go, reserve.go,
// takeover.go, finalize.go, purge.go, list.go, events.go, operator.go, erase.go,
// input.go, calls.go; race.go, operatorraces.go, invariants.go with turmoil.go,
// and cases.go; model.go, modelaudit.go, walk.go and walkoperator.go; fault.go,
// lostreply.go; bench.go. flows.go and flowrules.go are a suite of their own, about
// data flows.
package recordstest

import (
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// Grace is the grace that every store under test must be opened with, in place
// of [records.DefaultGrace].
const Grace = 50 * time.Millisecond

// Fresh makes a fresh and migrated database and returns how to open one more
// node's store over it. The opener closes what it opened in t.Cleanup; a rule
// may have closed it before.
type Fresh = func(t testing.TB) (open func(t testing.TB) records.Store)

// A rule is one sentence of the contract.
type rule struct {
	name  string
	check func(f *fixture)
}

// A group is the rules about one subject.
type group struct {
	name string
	// alone: each rule needs a database that nobody else writes, because it
	// counts rows, or because fences land, which the brake counts.
	alone bool
	rules []rule
}

// groups returns the whole suite.
func groups() []group {
	return []group{
		registerRules, heartbeatRules, leavingRules, attestRules,
		fenceRules, refusedFenceRules, brakeRules, operatorFenceRules,
		reserveRules, claimableRules, takeOverRules, refusedTakeOverRules, claimUnknownRules,
		finalizeRules, endRules, purgeRules, executorPurgeRules,
		executorListRules, recordListRules, fleetRules,
		eventRules, releaseRules, resolveRules, eraseRules, interventionRaceRules,
		inputRules, refusedInputRules, callRules, lostReplyRules,
		raceRules, ownRaceRules, caseRules, invariantRules, modelRules,
	}
}

// Run runs the suite over databases made by fresh.
func Run(t *testing.T, fresh func(t testing.TB) (open func(t testing.TB) records.Store)) {
	shared := newFixture(t, fresh)
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel()
					if g.alone {
						r.check(newFixture(t, fresh))
						return
					}
					r.check(&fixture{TB: t, store: shared.store, open: shared.open})
				})
			}
		})
	}
}
