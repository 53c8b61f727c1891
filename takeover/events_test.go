package takeover_test

import (
	"slices"
	"sync"
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

func (r reporter) Probed(id records.ExecutorID, v probe.Verdict) {
	r.add(event{node: r.node, kind: probed, executor: id, verdict: v})
}

func (r reporter) Fenced(id records.ExecutorID, reason string) {
	r.add(event{node: r.node, kind: fenced, executor: id, reason: reason})
}

func (r reporter) TookOver(rec records.Record, reason string) {
	r.add(event{node: r.node, kind: tookOver, record: rec, reason: reason})
}

func (r reporter) Reconciled(rec records.Record, f takeover.FindingKind) {
	r.add(event{node: r.node, kind: reconciled, record: rec, finding: f})
}

func (r reporter) Settled(rec records.Record, to records.State, _ time.Duration) {
	r.add(event{node: r.node, kind: settled, record: rec, state: to})
}

func (r reporter) Purged(count int) { r.add(event{node: r.node, kind: purged, count: count}) }
