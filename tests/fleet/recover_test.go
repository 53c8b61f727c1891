//go:build unix

package fleet_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/tests/fleet"
)

// TestSweep is about records of the dead that nobody asks for.
func TestSweep(t *testing.T) {
	t.Parallel()
	t.Run("FinishesWhatWasDoneAndFreesWhatWasNot", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		f.Base.Sweeps = true
		nodes := f.Start(t, "a", "b")
		after, before := f.Ledger.Hold(fleet.AfterEffect, "done"), f.Ledger.Hold(fleet.BeforeEffect, "not done")
		nodes[0].Call(t, "done", fleet.Ask{})
		nodes[0].Call(t, "not done", fleet.Ask{})
		after.Await(t, 1)
		before.Await(t, 1)
		nodes[0].Kill()
		f.Restart(t, nodes[0]) // which fences the boot before
		fleet.Await(t, "both are recovered", func() bool {
			return f.Store.Record(t, "done").State == records.Finalized && f.Store.Record(t, "not done").State == records.Released
		})
		finalized(t, f, "done", "entry 1 under done")
		if booked := f.Ledger.Entries("not done"); len(booked) != 0 {
			t.Errorf("the sweep executed: %+v", booked)
		}
		nodes[1].Call(t, "done", fleet.Ask{}).Answer(t).Check(t, "replayed", "entry 1 under done")
		nodes[1].Call(t, "not done", fleet.Ask{}).Answer(t).Check(t, "executed", "entry 1 under not done")
	})
}

// TestPolicy is about what may fence an executor.
func TestPolicy(t *testing.T) {
	t.Parallel()
	t.Run("UnderLeaseNoProbeCutsTheLeaseOfAKilledOwnerShort", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		f.Base.Policy = string(records.PolicyLease)
		nodes := f.Start(t, "a", "b", "c")
		hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
		nodes[0].Call(t, "k", fleet.Ask{})
		hold.Await(t, 1)
		crowd := gather(t, nodes[1:], 1, fleet.Ask{})
		nodes[0].Kill()
		for _, c := range crowd {
			if got := c.Answer(t); got.Body != "entry 1 under k" {
				t.Errorf("answer = %+v", got)
			}
		}
		finalized(t, f, "k", "entry 1 under k")
		fenced := f.Store.Fenced(t)
		if len(fenced) != 1 || fenced[0].Slot != "a" {
			t.Fatalf("fenced: %+v, want the killed one alone", fenced)
		}
		if e := fenced[0]; e.FencedAt.Sub(e.HeartbeatAt) <= f.Base.Times.Lease {
			t.Errorf("fenced %s after its last heartbeat, within its lease of %s", e.FencedAt.Sub(e.HeartbeatAt), f.Base.Times.Lease)
		}
	})
}
