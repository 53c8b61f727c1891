//go:build unix

package fleet_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

func k01(t *testing.T) {
	f := newFleet(t)
	nodes := f.Start(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
	first := a.Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)
	held := f.Store.Record(t, "k")

	a.Kill()
	first.Fails(t)
	got := b.Call(t, "k", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under k")
	if got.Epoch != held.Epoch+1 {
		t.Errorf("epoch = %d, want %d after %d", got.Epoch, held.Epoch+1, held.Epoch)
	}
	if r := finalized(t, f, "k", "entry 1 under k"); r.Takeovers != 1 || r.Epoch != got.Epoch {
		t.Errorf("record = %+v, want one take-over, epoch %d", r, got.Epoch)
	}
	if dead := f.Store.Boot(t, held.Executor); dead.State != records.Fenced || dead.FencedBy != f.Store.Executor(t, "b").ID {
		t.Errorf("the killed executor is %s, fenced by %s", dead.State, dead.FencedBy)
	}
	replayed(t, "k", "entry 1 under k", b, c)
}

func k45(t *testing.T) {
	f := newFleet(t)
	nodes := f.Start(t, "a", "b", "c")
	hold := f.Ledger.Hold(fleet.BeforeEffect, "asked at b", "asked at a", "not asked")
	for _, key := range []string{"asked at b", "asked at a", "not asked"} {
		nodes[0].Call(t, key, fleet.Ask{})
	}
	hold.Await(t, 3)
	old := f.Store.Executor(t, "a")

	nodes[0].Kill()
	a := f.Restart(t, nodes[0])
	if a.Internal != nodes[0].Internal {
		t.Fatalf("the new boot listens at %s, not %s", a.Internal, nodes[0].Internal)
	}
	fleet.Await(t, "the new boot registers", func() bool { return f.Store.Executor(t, "a").ID != old.ID })
	fresh := f.Store.Executor(t, "a")
	if dead := f.Store.Boot(t, old.ID); dead.State != records.Fenced || dead.FencedBy != fresh.ID {
		t.Errorf("the old boot is %s, fenced by %s, want by the new one", dead.State, dead.FencedBy)
	}
	f.Warm(t)
	nodes[1].Call(t, "asked at b", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under asked at b")
	a.Call(t, "asked at a", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under asked at a")
	if r := f.Store.Record(t, "not asked"); r.State != records.InProgress || r.Executor != old.ID {
		t.Errorf("nobody asked for it, and its record is %+v", r)
	}
	nodes[2].Call(t, "not asked", fleet.Ask{}).Answer(t).Check(t, "taken_over", "entry 1 under not asked")
	if fenced := f.Store.Fenced(t); len(fenced) != 1 {
		t.Errorf("fenced: %+v, want the old boot alone", fenced)
	}
}

func k46(t *testing.T) {
	const count = 250
	f, cluster := newFleetOver(t)
	nodes := f.Start(t, "a", "b", "c")
	keys := make([]string, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	hold := f.Ledger.Hold(fleet.BeforeEffect, keys...)
	for _, key := range keys {
		nodes[0].Call(t, key, fleet.Ask{})
	}
	hold.Await(t, count)
	nodes[0].Kill()

	var (
		asking sync.WaitGroup
		ended  atomic.Int64
		bodies = make([]string, count)
	)
	for i, key := range keys {
		asking.Go(func() {
			bodies[i] = persist(t, key, nodes[1+i%2], nodes[1+(i+1)%2])
			ended.Add(1)
		})
	}
	fleet.Await(t, "some are taken over, and not all", func() bool { return ended.Load() >= 10 })
	cluster.Stop(t, postgrestest.Immediate)
	if ended.Load() == count {
		t.Fatal("all ended before the store crashed")
	}
	cluster.Start(t)
	asking.Wait()
	for i, key := range keys {
		if finalized(t, f, key, fmt.Sprintf("entry 1 under %s", key)); bodies[i] != "entry 1 under "+key {
			t.Errorf("the client of %s was told %q", key, bodies[i])
		}
	}
}

// persist asks as a client does that wants an answer: of those who do not
// serve, the next.
func persist(t *testing.T, key string, nodes ...*fleet.Node) (body string) {
	fleet.Await(t, key+" is answered", func() bool {
		for _, n := range nodes {
			got, err := n.Do(t.Context(), key, fleet.Ask{})
			if err == nil && got.Status == http.StatusOK && got.Outcome != "in_progress" {
				body = got.Body
				return true
			}
		}
		return false
	})
	return body
}

func k52(t *testing.T) {
	f := newFleet(t)
	f.Base.Takeovers = 2
	nodes := f.Start(t, "a", "b", "c")
	deadly := fleet.Ask{Work: "die", Reconciler: "reexecute"}
	for i := range nodes { // the first execution, and two after take-overs
		nodes[i].Call(t, "k", deadly).Fails(t)
		if nodes[i].AwaitEnd(t) == nil {
			t.Fatalf("%s left by itself", nodes[i].Spec.Slot)
		}
		if r := f.Store.Record(t, "k"); r.State != records.InProgress || r.Takeovers != i {
			t.Fatalf("record = %+v, want %d take-overs", r, i)
		}
		nodes[i] = f.Restart(t, nodes[i])
		f.Warm(t)
	}
	nodes[0].Call(t, "k", deadly).Answer(t).Check(t, "outcome_unknown", "")
	if r := f.Store.Record(t, "k"); r.State != records.Unknown {
		t.Errorf("record = %+v, want unknown", r)
	}
	for i, n := range nodes {
		n.Call(t, "k", fleet.Ask{Work: "die", Reconciler: "none"}).Answer(t).Check(t, "outcome_unknown", "")
		key := fmt.Sprintf("another %d", i)
		n.Call(t, key, fleet.Ask{}).Answer(t).Check(t, "executed", "entry 1 under "+key)
	}
}
