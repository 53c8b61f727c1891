package takeover_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// history is what all nodes of a fleet said that happened.
type history struct {
	mu  sync.Mutex
	all []event
}

// event is one thing that happened. Only the fields of its kind are set.
type event struct {
	node     string // who says so
	kind     eventKind
	executor records.ExecutorID
	record   records.Record
	reason   string
	verdict  probe.Verdict
	finding  takeover.FindingKind
	state    records.State
	count    int
}

type eventKind int

const (
	probed eventKind = iota
	fenced
	tookOver
	reconciled
	settled
	purged
	claimed
	waited
)

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e)
}

// of returns the events of a kind, in order.
func (h *history) of(kind eventKind) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.all), func(e event) bool { return e.kind != kind })
}

func (h *history) count(kind eventKind, is func(e event) bool) (n int) {
	for _, e := range h.of(kind) {
		if is(e) {
			n++
		}
	}
	return n
}

// reporter is one node's part in the history.
type reporter struct {
	*history
	node string
}

func (r reporter) Claimed(rec records.Record) {
	r.add(event{node: r.node, kind: claimed, record: rec})
}

func (r reporter) Waited(rec records.Record) {
	r.add(event{node: r.node, kind: waited, record: rec})
}

func (r reporter) Probed(rec records.Record, v probe.Verdict) {
	r.add(event{node: r.node, kind: probed, executor: rec.Executor, record: rec, verdict: v})
}

func (r reporter) Fenced(id records.ExecutorID, reason string) {
	r.add(event{node: r.node, kind: fenced, executor: id, reason: reason})
}

func (r reporter) TookOver(rec records.Record, reason string) {
	r.add(event{node: r.node, kind: tookOver, record: rec, reason: reason})
}

func (r reporter) Reconciled(rec records.Record, f takeover.Finding) {
	r.add(event{node: r.node, kind: reconciled, record: rec, finding: f.Kind, reason: f.Reason})
}

func (r reporter) Settled(rec records.Record, to records.State, _ time.Duration, reason string) {
	r.add(event{node: r.node, kind: settled, record: rec, state: to, reason: reason})
}

func (r reporter) Purged(count int) { r.add(event{node: r.node, kind: purged, count: count}) }

func TestEvents(t *testing.T) {
	t.Parallel()
	rule(t, "TellAnExecutionsCourse", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		f.await("the duplicate waits", func() bool { return f.history.count(waited, func(event) bool { return true }) == 1 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		r := stands(t, nodes[0], ask("k"), records.Finalized)
		for _, want := range []event{{kind: claimed, node: "a"}, {kind: waited, node: "b"}, {kind: settled, node: "a"}} {
			all := f.history.of(want.kind)
			if len(all) != 1 || all[0].node != want.node || all[0].record.ID != r.ID || all[0].record.Epoch != r.Epoch {
				t.Errorf("events of kind %d: %+v, want one by %s", want.kind, all, want.node)
			}
		}
		for _, e := range f.history.of(probed) {
			if e.record.ID != r.ID || e.executor != r.Executor {
				t.Errorf("a probe about %s of %s", e.record.ID, e.executor)
			}
		}
	})

	rule(t, "SayWhyNobodyCanTell", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		<-do(m, askOnce("k"), func(context.Context) takeover.Completion { panic("no ink") })
		all := f.history.of(settled)
		if len(all) != 1 || all[0].state != records.Unknown || !strings.Contains(all[0].reason, "no ink") {
			t.Errorf("events = %+v, want one that says why", all)
		}
	})

	rule(t, "ThatAreOldArePurged", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{EventRetention: time.Hour}, "a")[0]
		old, young := records.Occurrence{Kind: records.EventProbed, Ago: 2 * time.Hour}, records.Occurrence{Kind: records.EventFenced}
		if err := m.gate.Store.Note(t.Context(), []records.Occurrence{old, young}); err != nil {
			t.Fatal(err)
		}
		left := func() []records.Event {
			page, err := m.gate.Store.Events(t.Context(), records.EventFilter{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return page.Events
		}
		f.await("the old event is gone", func() bool { return len(left()) < 2 })
		if all := left(); len(all) != 1 || all[0].Kind != records.EventFenced {
			t.Errorf("left are %+v", all)
		}
	})
}
