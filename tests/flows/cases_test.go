//go:build unix

package flows_test

import (
	"net/http"
	"testing"
)

func f05(t *testing.T) {
	const size = 8 << 20
	p := newPlane(t, size)
	p.from.allow(size / 2)
	nodes := p.start("a", "b")
	if r := nodes[0].ask(http.MethodPost, "/dataflows/start", push("f05", toFile("out", "f05"))); r.status != http.StatusOK || r.state() != "STARTED" {
		t.Fatalf("start: %s", r)
	}
	nodes[0].moved("f05", size/2)
	nodes[0].Kill()
	if r := nodes[1].ask(http.MethodPost, "/dataflows/start", push("f05", toFile("out", "f05"))); r.status != http.StatusOK || r.state() != "STARTED" {
		t.Fatalf("start again: %s", r)
	}
	p.from.allow(size)
	got := nodes[1].becomes("f05", "COMPLETED")
	if got.json["sha256"] != p.from.sum() || got.json["bytes"] != float64(size) || got.json["attempts"] != float64(2) {
		t.Errorf("status = %s", got)
	}
	p.whole("out", "f05")
	p.control.hears("f05", "completed")
}

// TestCase plays what happened to the users of comparable systems.
func TestCase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(t *testing.T)
	}{
		{"F05_TheOwnerIsKilledMidCopyAndTheStartIsRepeatedElsewhere", f05},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t)
		})
	}
}
