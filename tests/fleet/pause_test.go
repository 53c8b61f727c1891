//go:build unix

package fleet_test

import (
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/tests/fleet"
)

func k02(t *testing.T) {
	f := newFleet(t)
	nodes := f.Start(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	hold := f.Ledger.Hold(fleet.AfterEffect, "k")
	first := a.Call(t, "k", fleet.Ask{Stubborn: true})
	hold.Await(t, 1)
	old := f.Store.Executor(t, "a")

	a.Stop(t)
	stopped := f.Store.Clock(t)
	got := b.Call(t, "k", fleet.Ask{}).Answer(t).Check(t, "reconciled", "entry 1 under k")
	f.Store.AwaitClock(t, stopped, 3*f.Base.Times.Lease)
	hold.Release() // the answer lies in the stopped owner's socket
	a.Cont(t)

	first.Answer(t).Check(t, "waited", "entry 1 under k")
	if len(a.Output.Said("overtaken", "record", fleet.IDOf("k").String())) != 1 {
		t.Error("the owner's late finalize was not refused")
	}
	if r := finalized(t, f, "k", "entry 1 under k"); r.Epoch != got.Epoch || r.Executor != f.Store.Executor(t, "b").ID {
		t.Errorf("record = %+v, want the successor's, epoch %d", r, got.Epoch)
	}
	f.Warm(t)
	if fresh := f.Store.Executor(t, "a"); fresh.ID == old.ID || f.Store.Boot(t, old.ID).State != records.Fenced {
		t.Errorf("the owner is still executor %s", fresh.ID)
	}
	replayed(t, "k", "entry 1 under k", nodes...)
	a.Call(t, "another", fleet.Ask{}).Answer(t).Check(t, "executed", "entry 1 under another")
}

// TestSilence is about owners that neither answer nor refuse.
func TestSilence(t *testing.T) {
	t.Parallel()
	t.Run("AStoppedOwnerIsFencedByProbesLongBeforeItsLeaseEnds", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		f.Base.Times.Lease = endless // only probes can have fenced it in time
		nodes := f.Start(t, "a", "b", "c")
		hold := f.Ledger.Hold(fleet.BeforeEffect, "waited for", "asked later")
		nodes[0].Call(t, "waited for", fleet.Ask{})
		nodes[0].Call(t, "asked later", fleet.Ask{})
		hold.Await(t, 2)
		waiting := nodes[1].Call(t, "waited for", fleet.Ask{})
		waits(t, nodes[1], 1)

		nodes[0].Stop(t)
		later := nodes[1].Call(t, "asked later", fleet.Ask{})
		waiting.Answer(t).Check(t, "taken_over", "entry 1 under waited for")
		later.Answer(t).Check(t, "taken_over", "entry 1 under asked later")
		silenced(t, f, nodes[0], nodes[1], "waited for")

		nodes[0].Cont(t)
		f.Warm(t)
		replayed(t, "waited for", "entry 1 under waited for", nodes...)
		finalized(t, f, "asked later", "entry 1 under asked later")
	})
}

// endless is a lease that no test outlives.
const endless = 10 * time.Minute

// silenced checks how an observer came to take over from a silent owner: it
// confirmed, then it fenced on the confirmed silence, then it took over, then
// it asked what had become of the effect.
func silenced(t *testing.T, f *fleet.Fleet, owner, observer *fleet.Node, key string) {
	t.Helper()
	dead := f.Store.Fenced(t)
	if len(dead) != 1 || dead[0].Slot != owner.Spec.Slot {
		t.Fatalf("fenced: %+v, want %s alone", dead, owner.Spec.Slot)
	}
	id, said := dead[0].ID.String(), observer.Output.Said
	events := [][]fleet.Line{
		said("suspicion", "suspect", id, "outcome", "confirmed", "verdict", "silent"),
		said("fenced", "executor", id),
		said("took over", "record", fleet.IDOf(key).String()),
		said("reconciled", "key", key, "found", "not_applied"),
	}
	for i, lines := range events {
		if len(lines) == 0 {
			t.Fatalf("event %d of the take-over is missing from the observer's log", i)
		}
		if i > 0 && lines[0].At().Before(events[i-1][0].At()) {
			t.Errorf("%s came before %s", lines[0].Text, events[i-1][0].Text)
		}
	}
}
