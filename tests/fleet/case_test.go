//go:build unix

package fleet_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// TestCase plays what happened to the users of comparable systems, with
// processes.
func TestCase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(t *testing.T)
	}{
		{"K01_TheOwnerIsKilledAndTheRetryTakesOver", k01},
		{"K02_AStoppedOwnerFinalizesTooLate", k02},
		{"K07_TheResultOutlivesAnOutageOfTheStore", k07},
		{"K07_TheOwnerDiesInAnOutageOfTheStore", k07Death},
		{"K42_ADrainOutlivesTheLease", k42},
		{"K43_NobodyIsFencedWhileNobodyCanBeat", k43},
		{"K44_AnObserverCutFromTheStoreFencesNobody", k44},
		{"K45_ARestartOnTheSameSlotFencesTheOldBoot", k45},
		{"K46_TheStoreCrashesDuringTakeOvers", k46},
		{"K51_TwoHundredDuplicatesOnTwoNodes", k51},
		{"K52_WorkThatKillsItsNodeEndsUnknown", k52},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t)
		})
	}
}

// newFleet makes a fleet on a database of its own.
func newFleet(t testing.TB) *fleet.Fleet {
	t.Helper()
	return fleet.New(t, program, postgrestest.Database(t), fleet.Brisk())
}

// newFleetOver makes a fleet on a server of its own, which it may stop.
func newFleetOver(t testing.TB) (*fleet.Fleet, *postgrestest.Cluster) {
	t.Helper()
	c := postgrestest.Start(t, postgrestest.Options{})
	return fleet.New(t, program, c.Database(t), fleet.Brisk()), c
}

// finalized checks that the key has one stored response, by one effect.
func finalized(t *testing.T, f *fleet.Fleet, key, body string) records.Record {
	t.Helper()
	r := f.Store.Record(t, key)
	if r.State != records.Finalized || r.Response == nil || string(r.Response.Body) != body {
		t.Fatalf("record = %+v, want finalized with %q", r, body)
	}
	if n := len(f.Ledger.Entries(key)); n != 1 {
		t.Fatalf("the ledger has %d entries under %s", n, key)
	}
	return r
}

// replayed checks that every one of the nodes replays the response.
func replayed(t *testing.T, key, body string, nodes ...*fleet.Node) {
	t.Helper()
	for _, n := range nodes {
		n.Call(t, key, fleet.Ask{}).Answer(t).Check(t, "replayed", body)
	}
}

// fencedNobody checks that no executor was fenced, and none overtaken.
func fencedNobody(t *testing.T, f *fleet.Fleet, nodes ...*fleet.Node) {
	t.Helper()
	if fenced := f.Store.Fenced(t); len(fenced) > 0 {
		t.Errorf("fenced: %+v", fenced)
	}
	for _, n := range nodes {
		for _, took := range n.Output.Said("took over") {
			if took.Field("reason") != "outcome unknown" { // that is claimed from nobody
				t.Errorf("%s took over: %s", n.Spec.Slot, took.Text)
			}
		}
	}
}

// waits waits until so many duplicates wait on the node.
func waits(t testing.TB, n *fleet.Node, count int) {
	t.Helper()
	fleet.Await(t, n.Spec.Slot+" has waiting duplicates", func() bool { return n.Stats(t).Waiting == count })
}
