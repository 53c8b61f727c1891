//go:build unix

package flows_test

import (
	"fmt"
	"net/http"
	"testing"
)

// BenchmarkDuplicateStart measures the answer to a start of a flow that runs: by
// the node that moves the bytes, and by another, which asks that one first.
func BenchmarkDuplicateStart(b *testing.B) {
	p := newPlane(b, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f")
	for i, name := range []string{"AtTheOwner", "AtAnother"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				repeated(b, nodes[i].ask(http.MethodPost, "/dataflows/start", push("f", toFile("out", "f"))), "f", "STARTED")
			}
		})
	}
}

// BenchmarkTerminate measures from the order, at a node that does not move the
// bytes, to the answer, when they have stopped.
func BenchmarkTerminate(b *testing.B) {
	p := newPlane(b, size)
	nodes := p.start("a", "b")
	p.from.allow(size / 4)
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprintf("f%d", n)
		b.StopTimer()
		nodes[0].ask(http.MethodPost, "/dataflows/start", push(id, toFile("out", id)))
		within(b, "it reads the source", func() bool { _, _, _, reading := p.from.counts(); return reading > 0 })
		b.StartTimer()
		if r := nodes[1].ask(http.MethodPost, "/dataflows/"+id+"/terminate", word1); r.status != http.StatusOK {
			b.Fatalf("terminate: %s", r)
		}
	}
}
