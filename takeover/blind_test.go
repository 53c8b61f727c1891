package takeover_test

import (
	"testing"
	"time"

	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// TestBlind holds rules about a node that beats and cannot read who its peers
// are.
func TestBlind(t *testing.T) {
	rule(t, "ItDoesNotTakeItselfForAlone", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		b := nodes[1]
		b.gate.shut(recordstest.ListExecutors)
		f.isolate(b, blackhole, nodes[0], nodes[2])
		f.pass(9 * time.Second) // what it knows of its peers is older than half a lease
		nodes[0].gate.shut(recordstest.Heartbeat)
		waiting := do(b, patient("k"), refuse(t))
		f.pass(9 * time.Second) // longer than the budget, shorter than the owner's lease
		nodes[0].gate.openAgain()
		f.pass(2 * time.Second)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})

	rule(t, "ItBeatsNoSlower", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		m.gate.freeze(recordstest.ListExecutors)
		f.pass(2 * time.Second)
		before := m.row(t).Beat
		f.pass(time.Minute)
		if beats := m.row(t).Beat - before; beats < 50 {
			t.Errorf("%d heartbeats in a minute", beats)
		}
	})
}
