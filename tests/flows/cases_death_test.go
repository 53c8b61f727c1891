//go:build unix

package flows_test

import (
	"net/http"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func f05(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f05")
	nodes[0].Kill()
	repeated(t, nodes[1].ask(http.MethodPost, "/dataflows/start", push("f05", toFile("out", "f05"))), "f05", "STARTED")
	p.from.allow(size)
	p.taken(nodes[1], "f05")
}

// taken demands that a flow comes to its end on the node, in its second
// execution, and that it was gone on with, not begun again.
func (p *plane) taken(n *node, id string) {
	p.t.Helper()
	got := n.becomes(id, "COMPLETED")
	if got.json["sha256"] != p.from.sum() || got.json["bytes"] != float64(size) || got.json["attempts"] != float64(2) {
		p.t.Errorf("status = %s, want all bytes, in two executions", got)
	}
	if _, resumed, _, _ := p.from.counts(); resumed == 0 {
		p.t.Error("it was begun again from the start")
	}
	p.whole("out", id)
	p.control.hears(id, "completed")
}

// f05Postgres is f05 over the store of a fleet on several machines.
func f05Postgres(t *testing.T) {
	p := newPlane(t, size)
	p.store = postgrestest.Database(t)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f05")
	nodes[0].Kill()
	repeated(t, nodes[1].ask(http.MethodPost, "/dataflows/start", push("f05", toFile("out", "f05"))), "f05", "STARTED")
	p.from.allow(size)
	p.taken(nodes[1], "f05")
}

func f05Unasked(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f05")
	nodes[0].Kill()
	p.from.allow(size)
	p.taken(nodes[1], "f05")
}

func f05Bound(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.from.allow(size / 4)
	m := push("f05", toFile("own", "f05"))
	if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	p.half(nodes[0], "f05")
	nodes[0].Kill()
	// Another node says how it stands, and leaves it alone: the disk is not its.
	repeated(t, nodes[1].ask(http.MethodPost, "/dataflows/start", m), "f05", "STARTED")
	p.from.allow(size)
	a := p.restart("a")
	if got := a.becomes("f05", "COMPLETED"); got.json["attempts"] != float64(2) {
		t.Errorf("status = %s", got)
	}
	if n := len(nodes[1].Output.Said("flow begins")); n != 0 {
		t.Errorf("the other node began it %d times", n)
	}
	p.whole("own", "f05")
}

func f05Drain(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f05")
	nodes[0].Term(t)
	if err := nodes[0].AwaitEnd(t); err != nil {
		t.Errorf("the node that left ended with %v", err)
	}
	p.from.allow(size)
	p.taken(nodes[1], "f05")
}

func f20(t *testing.T) {
	p := newPlane(t, size)
	p.takeover = "takeovers: 1, "
	nodes := p.start("a", "b", "c")
	p.from.allow(size / 2)
	// A flow that kills its nodes is one whose nodes the test kills.
	if r := nodes[0].ask(http.MethodPost, "/dataflows/start", push("f20", toFile("out", "f20"))); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	for range 2 {
		killed := p.killOwner("f20")
		p.restart(killed)
	}
	observer := p.nodes["c"]
	got := observer.becomes("f20", "TERMINATED")
	if reason, _ := got.json["error"].(string); reason == "" {
		t.Errorf("status = %s, want the reason", got)
	}
	p.control.hears("f20", "errored")
	repeated(t, observer.ask(http.MethodPost, "/dataflows/start", push("f20", toFile("out", "f20"))), "f20", "TERMINATED")
	p.from.allow(size)
	if r := observer.ask(http.MethodPost, "/dataflows/start", push("other", toFile("out", "other"))); r.status != http.StatusOK {
		t.Fatalf("start of another: %s", r)
	}
	observer.becomes("other", "COMPLETED")
}

// killOwner kills the node that has a flow once it moves bytes, and returns its
// slot.
func (p *plane) killOwner(id string) (slot string) {
	p.t.Helper()
	within(p.t, "somebody moves "+id, func() bool {
		for name, n := range p.nodes {
			if n.Ended() {
				continue
			}
			owner, _ := n.status(id).json["executor"].(string)
			h, err := n.Health(p.t.Context())
			if err == nil && h.Executor == owner && h.InProgress > 0 {
				n.Kill()
				slot = name
				return true
			}
		}
		return false
	})
	return slot
}
