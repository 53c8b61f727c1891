package takeover_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

func TestCost(t *testing.T) {
	t.Parallel()
	rule(t, "AFirstExecutionIsOneReserveAndOneFinalize", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.attested(nodes...)
		m := nodes[0]
		before := make(map[recordstest.Call]int)
		for _, c := range everyCall {
			before[c] = m.gate.Calls(c)
		}
		asked := m.calls.total() + nodes[1].calls.total()
		const many = 20
		var runs atomic.Int64
		for i := range many {
			// No time passes in a bubble while something runs, so these are all
			// the statements there are.
			(<-do(m, ask(fmt.Sprint(i)), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		}
		for _, c := range everyCall {
			want := 0
			if c == recordstest.Reserve || c == recordstest.Finalize {
				want = many
			}
			if n := m.gate.Calls(c) - before[c]; n != want {
				t.Errorf("%s: %d calls, want %d", c, n, want)
			}
		}
		if n := m.calls.total() + nodes[1].calls.total() - asked; n != 0 {
			t.Errorf("%d questions", n)
		}
	})

	rule(t, "AReplayFromMemoryAsksNobody", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		var runs atomic.Int64
		(<-do(m, ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		(<-do(m, ask("k"), refuse(t))).check(t, takeover.Replayed, "one")
		before := m.gate.statements()
		for range 100 {
			(<-do(m, ask("k"), refuse(t))).check(t, takeover.Replayed, "one")
		}
		if n := m.gate.statements() - before; n != 0 {
			t.Errorf("%d statements", n)
		}
	})

	rule(t, "AnIdleFleetOfThreeIssuesAtMostThreeStatementsANodeAndHeartbeat", func(t *testing.T, f *fleet) {
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, refuse(t))
		nodes := f.start(config, "a", "b", "c")
		f.attested(nodes...)
		type tally struct{ statements, beats int }
		before := make([]tally, len(nodes))
		count := func(m *member) tally { return tally{m.gate.statements(), m.gate.Calls(recordstest.Heartbeat)} }
		for i, m := range nodes {
			before[i] = count(m)
		}
		f.pass(3 * time.Minute)
		for i, m := range nodes {
			now := count(m)
			statements, beats := now.statements-before[i].statements, now.beats-before[i].beats
			if beats < 160 || beats > 200 {
				t.Errorf("%s: %d heartbeats in three minutes", m.name, beats)
			}
			if statements > 3*beats {
				t.Errorf("%s: %d statements in %d heartbeats", m.name, statements, beats)
			}
			t.Logf("%s: %.2f statements a heartbeat", m.name, float64(statements)/float64(beats))
		}
	})

	rule(t, "AnExecutionThatLastsCostsNothingMeanwhile", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var all []*held
		for i := range 50 {
			h, _ := begin(nodes[0], ask(fmt.Sprint(i)))
			all = append(all, h)
		}
		calls := []recordstest.Call{recordstest.Reserve, recordstest.Load, recordstest.Finalize, recordstest.TakeOver, recordstest.MarkUnknown}
		before := nodes[0].gate.statements(calls...)
		beats := nodes[0].gate.Calls(recordstest.Heartbeat)
		f.pass(time.Minute)
		if n := nodes[0].gate.statements(calls...) - before; n != 0 {
			t.Errorf("%d statements", n)
		}
		if n := nodes[0].gate.Calls(recordstest.Heartbeat) - beats; n > 80 {
			t.Errorf("%d heartbeats in a minute", n)
		}
		for _, h := range all {
			close(h.finish)
		}
	})
}

// stampede has many duplicates wait on two nodes, kills the owner, and counts
// what the two nodes asked and read.
func stampede(t *testing.T, f *fleet, duplicates int) (questions, reads, writes int) {
	t.Helper()
	nodes := f.start(takeover.Config{}, "a", "b", "c")
	f.attested(nodes...)
	_, _ = begin(nodes[0], ask("k"))
	var runs atomic.Int64
	var waiting []<-chan answered
	for i := range duplicates {
		waiting = append(waiting, do(nodes[1+i%2], patient("k"), instant(&runs, "second")))
	}
	f.await("all wait", func() bool { return nodes[1].Waiting()+nodes[2].Waiting() == duplicates })
	f.pass(20 * time.Second)
	f.die(nodes[0])
	took := 0
	for _, w := range waiting {
		got := <-w
		if got.Outcome == takeover.TookOver {
			took++
		} else {
			got.check(t, takeover.Waited, "second")
		}
	}
	if took != 1 {
		t.Errorf("%d took over", took)
	}
	ran(t, &runs, 1)
	if r := stands(t, nodes[1], ask("k"), records.Finalized); r.Takeovers != 1 {
		t.Errorf("%d take-overs", r.Takeovers)
	}
	for _, m := range nodes[1:] {
		questions += int(m.calls.total())
		reads += m.gate.statements(recordstest.Load)
		writes += m.gate.statements(recordstest.Reserve, recordstest.TakeOver, recordstest.Fence, recordstest.Finalize)
	}
	return questions, reads, writes
}

// costCases are those about what many callers cost.
func costCases(t *testing.T) {
	t.Run("K51_AThousandDuplicatesCostWhatTenDo", func(t *testing.T) {
		t.Parallel()
		type cost struct{ questions, reads, writes int }
		of := func(duplicates int) (c cost) {
			synctest.Test(t, func(t *testing.T) {
				c.questions, c.reads, c.writes = stampede(t, newBubble(t), duplicates)
			})
			return c
		}
		few, many := of(10), of(1000)
		t.Logf("10 duplicates: %+v; 1,000: %+v", few, many)
		// The watches' waits and pauses are jittered, so the numbers may differ
		// a little, but not with the number of those who wait.
		if many.questions > few.questions+10 || many.reads > few.reads+10 || many.writes > few.writes+4 {
			t.Errorf("10 duplicates cost %+v, 1,000 cost %+v", few, many)
		}
	})
}
