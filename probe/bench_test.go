package probe_test

import (
	"testing"

	"github.com/probate-dev/probate/probe"
)

// BenchmarkProbe is one verdict: a connection, a question, two signatures.
func BenchmarkProbe(b *testing.B) {
	n := newNode(b, 1, nil)
	defer n.running.begin(recordID(1))()
	c := newClient(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if o := c.Probe(b.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Running {
			b.Fatal(o)
		}
	}
}

// BenchmarkWatch is one watch that is answered at once: a round trip on the
// connection that all watches share.
func BenchmarkWatch(b *testing.B) {
	n := newNode(b, 1, nil)
	c := newClient(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if o := c.Watch(b.Context(), n.executor, recordID(1), 1, probe.MaxWait); o.Verdict != probe.NotRunning {
			b.Fatal(o)
		}
	}
}
