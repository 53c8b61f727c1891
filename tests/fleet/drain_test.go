//go:build unix

package fleet_test

import (
	"net/http"
	"testing"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/tests/fleet"
)

func k42(t *testing.T) {
	f := newFleet(t)
	nodes := f.Start(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
	first := a.Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)
	second := b.Call(t, "k", fleet.Ask{})
	waits(t, b, 1)
	owner := f.Store.Executor(t, "a")

	a.Term(t)
	told := f.Store.Clock(t)
	fleet.Await(t, "the health check fails", func() bool {
		h, err := a.Health(t.Context())
		if err != nil {
			t.Fatalf("the node no longer answers: %v", err)
		}
		return !h.Ready
	})
	fleet.Await(t, "three leases pass", func() bool {
		if seen := signed(t, owner, "k"); seen != probe.Running {
			t.Fatalf("the draining owner says %s, want running", seen)
		}
		return f.Store.Clock(t).Sub(told) > 3*f.Base.Times.Lease
	})
	if got := a.Call(t, "new", fleet.Ask{}).Answer(t); got.Status != http.StatusServiceUnavailable {
		t.Errorf("the draining node answered a new key: %+v", got)
	}
	if e := f.Store.Boot(t, owner.ID); e.State != records.Draining || e.HeartbeatAge > f.Base.Times.Lease {
		t.Errorf("the owner is %s, its heartbeat %s old", e.State, e.HeartbeatAge)
	}

	hold.Release()
	first.Answer(t).Check(t, "executed", "entry 1 under k")
	second.Answer(t).Check(t, "waited", "entry 1 under k")
	if err := a.AwaitEnd(t); err != nil {
		t.Errorf("the drained node ended with %v", err)
	}
	if e := f.Store.Boot(t, owner.ID); e.State != records.Gone {
		t.Errorf("the drained executor is %s, want gone", e.State)
	}
	replayed(t, "k", "entry 1 under k", nodes[1:]...)
	fencedNobody(t, f, nodes...)
}

// TestLeave is about SIGTERM.
func TestLeave(t *testing.T) {
	t.Parallel()
	t.Run("ASecondSignalEndsAtOnceAndLeavesTheOutcomeToTheLedger", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.Start(t, "a", "b")
		hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
		nodes[0].Call(t, "k", fleet.Ask{Reconciler: "none"})
		hold.Await(t, 1)
		owner := f.Store.Executor(t, "a")
		nodes[0].Term(t)
		fleet.Await(t, "it drains", func() bool { return f.Store.Boot(t, owner.ID).State == records.Draining })
		nodes[0].Term(t)
		if err := nodes[0].AwaitEnd(t); err != nil {
			t.Errorf("the stopped node ended with %v", err)
		}
		if e := f.Store.Boot(t, owner.ID); e.State != records.Gone {
			t.Errorf("the executor is %s, want gone", e.State)
		}
		if r := f.Store.Record(t, "k"); r.State != records.Unknown {
			t.Errorf("record = %+v, want unknown: its work had begun", r)
		}
		// Somebody who can ask the ledger learns that nothing was booked.
		nodes[1].Call(t, "k", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under k")
	})
}
