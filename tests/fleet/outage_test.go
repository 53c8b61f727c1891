//go:build unix

package fleet_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

func k07(t *testing.T) {
	f, cluster := newFleetOver(t)
	nodes := f.Start(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	hold := f.Ledger.Hold(fleet.AfterEffect, "k")
	first := a.Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)
	second := b.Call(t, "k", fleet.Ask{})
	waits(t, b, 1)
	owner := f.Store.Executor(t, "a")

	cluster.Stop(t, postgrestest.Fast)
	hold.Release()
	fleet.Await(t, "the owner fails to store its result", func() bool { return a.Stats(t).Failed["settle"] > 0 })
	ageBeyond(t, a, 2*f.Base.Times.Lease)
	if seen := signed(t, owner, "k"); seen != probe.Running {
		t.Errorf("the owner says %s, want running", seen)
	}
	cluster.Start(t)

	first.Answer(t).Check(t, "executed", "entry 1 under k")
	second.Answer(t).Check(t, "waited", "entry 1 under k")
	if r := finalized(t, f, "k", "entry 1 under k"); r.Executor != owner.ID || r.Takeovers != 0 {
		t.Errorf("record = %+v, want the owner's", r)
	}
	fencedNobody(t, f, nodes...)
}

func k07Death(t *testing.T) {
	f, cluster := newFleetOver(t)
	nodes := f.Start(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	hold := f.Ledger.Hold(fleet.AfterEffect, "k")
	first := a.Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)

	cluster.Stop(t, postgrestest.Fast)
	hold.Release()
	fleet.Await(t, "the owner fails to store its result", func() bool { return a.Stats(t).Failed["settle"] > 0 })
	a.Kill()
	first.Fails(t)
	cluster.Start(t)

	if body := persist(t, "k", b); body != "entry 1 under k" {
		t.Errorf("the retry was told %q", body)
	}
	if len(b.Output.Said("reconciled", "key", "k", "found", "applied")) == 0 {
		t.Error("the successor did not ask the ledger")
	}
	finalized(t, f, "k", "entry 1 under k")
}

// ageBeyond waits until the node's last heartbeat is older than that.
func ageBeyond(t *testing.T, n *fleet.Node, age time.Duration) {
	t.Helper()
	fleet.Await(t, n.Spec.Slot+"'s heartbeat grows old", func() bool {
		h, err := n.Health(t.Context())
		return err == nil && h.HeartbeatAge > age
	})
}

// signed asks an executor about the record of a key, as a peer does.
func signed(t *testing.T, e records.Executor, key string) probe.Verdict {
	t.Helper()
	c := probe.NewClient(probe.ClientConfig{Cluster: "test"})
	defer c.Close()
	return c.Probe(t.Context(), e, fleet.IDOf(key), 1).Verdict
}

func k43(t *testing.T) {
	f, cluster := newFleetOver(t)
	nodes := f.Start(t, "a", "b", "c")
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
	first := nodes[0].Call(t, "k", fleet.Ask{Stubborn: true})
	hold.Await(t, 1)
	second := nodes[1].Call(t, "k", fleet.Ask{})
	waits(t, nodes[1], 1)

	// Nobody can beat, and everybody else's heartbeat is old when it can.
	tx, err := f.Store.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE probate.executors IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	f.Store.AwaitClock(t, f.Store.Clock(t), 2*f.Base.Times.Lease)
	third := nodes[2].Call(t, "k", fleet.Ask{})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.Warm(t)
	fencedNobody(t, f, nodes...)

	// The same with a store that is not there.
	cluster.Stop(t, postgrestest.Fast)
	for _, n := range nodes {
		ageBeyond(t, n, 2*f.Base.Times.Lease)
	}
	cluster.Start(t)
	f.Warm(t)
	fencedNobody(t, f, nodes...)

	// The owner had to stop trusting its lease and its work did not return, so
	// nobody could tell what came of it. Whoever asks once the work has ended
	// has the ledger asked.
	hold.Release()
	first.Answer(t)
	second.Answer(t)
	third.Answer(t)
	if got := nodes[2].Call(t, "k", fleet.Ask{}).Answer(t); got.Body != "entry 1 under k" {
		t.Errorf("told %+v, want the entry that the work made", got)
	}
	replayed(t, "k", "entry 1 under k", nodes...)
	finalized(t, f, "k", "entry 1 under k")
	if boots := f.Store.Executors(t); len(boots) != len(nodes) {
		t.Errorf("%d boots, want the %d that started", len(boots), len(nodes))
	}
	fencedNobody(t, f, nodes...)
}

func k44(t *testing.T) {
	f := newFleet(t)
	link := throughRelay(t, f, "b")
	nodes := f.StartAs(t, specs(f, link, "a", "b", "c")...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k", "other")
	first, other := a.Call(t, "k", fleet.Ask{}), c.Call(t, "other", fleet.Ask{})
	hold.Await(t, 2)
	second := b.Call(t, "k", fleet.Ask{})
	waits(t, b, 1)

	link.relay.Freeze()
	ageBeyond(t, b, 2*f.Base.Times.Lease)
	late := b.Call(t, "other", fleet.Ask{}) // what it knows of the fleet is old
	link.relay.Heal()
	second2 := b.Call(t, "other", fleet.Ask{})
	f.Warm(t)
	hold.Release()

	first.Answer(t).Check(t, "executed", "entry 1 under k")
	second.Answer(t).Check(t, "waited", "entry 1 under k")
	other.Answer(t).Check(t, "executed", "entry 1 under other")
	late.Answer(t)
	second2.Answer(t)
	replayed(t, "other", "entry 1 under other", nodes...)
	fencedNobody(t, f, nodes...)
}

// cutOff is a node whose way to the store leads through a relay.
type cutOff struct {
	slot  string
	relay *fleet.Relay
	dsn   string
}

// throughRelay puts a relay between one slot and the store.
func throughRelay(t *testing.T, f *fleet.Fleet, slot string) cutOff {
	t.Helper()
	dsn, err := url.Parse(f.Base.DSN)
	if err != nil {
		t.Fatal(err)
	}
	r := fleet.NewRelay(t, dsn.Host)
	dsn.Host = r.Addr()
	return cutOff{slot: slot, relay: r, dsn: dsn.String()}
}

func specs(f *fleet.Fleet, link cutOff, slots ...string) []fleet.Spec {
	var all []fleet.Spec
	for _, slot := range slots {
		s := f.Base
		s.Slot = slot
		if slot == link.slot {
			s.DSN = link.dsn
		}
		all = append(all, s)
	}
	return all
}

// TestCutOff is about an owner that lives, answers, and cannot reach the
// store.
func TestCutOff(t *testing.T) {
	t.Parallel()
	t.Run("TheOwnerStopsBeforeItIsFencedAndComesBackAsAnother", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		link := throughRelay(t, f, "a")
		nodes := f.StartAs(t, specs(f, link, "a", "b", "c")...)
		a, b := nodes[0], nodes[1]
		hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
		first := a.Call(t, "k", fleet.Ask{})
		hold.Await(t, 1)
		old := f.Store.Executor(t, "a")

		link.relay.Cut()
		b.Call(t, "k", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under k")
		stopped, fenced := a.Output.Said("work interrupted", "key", "k"), b.Output.Said("fenced", "executor", old.ID.String())
		if len(stopped) != 1 || len(fenced) == 0 || !stopped[0].At().Before(fenced[0].At()) {
			t.Errorf("work stopped: %v; fenced: %v; want the one before the other", stopped, fenced)
		}
		if reason := f.Store.Boot(t, old.ID).FencedReason; reason != "lease expired" {
			t.Errorf("fenced because of %q: it answered every probe", reason)
		}

		link.relay.Heal()
		first.Answer(t).Check(t, "waited", "entry 1 under k")
		f.Warm(t)
		if fresh := f.Store.Executor(t, "a"); fresh.ID == old.ID {
			t.Error("the fenced executor lives on")
		}
		replayed(t, "k", "entry 1 under k", nodes...)
		finalized(t, f, "k", "entry 1 under k")
	})
}
