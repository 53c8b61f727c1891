package takeover

import (
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// Events is told what happened, for metrics and audit. Calls are made on the
// path of the event and must not block.
type Events interface {
	Probed(executor records.ExecutorID, v probe.Verdict)
	Fenced(executor records.ExecutorID, reason string)
	TookOver(r records.Record, reason string)
	Reconciled(r records.Record, f FindingKind)
	Settled(r records.Record, to records.State, took time.Duration)
	Purged(count int)
}

// NoEvents ignores everything; embed it to hear only some.
type NoEvents struct{}

// Probed does nothing.
func (NoEvents) Probed(records.ExecutorID, probe.Verdict) {}

// Fenced does nothing.
func (NoEvents) Fenced(records.ExecutorID, string) {}

// TookOver does nothing.
func (NoEvents) TookOver(records.Record, string) {}

// Reconciled does nothing.
func (NoEvents) Reconciled(records.Record, FindingKind) {}

// Settled does nothing.
func (NoEvents) Settled(records.Record, records.State, time.Duration) {}

// Purged does nothing.
func (NoEvents) Purged(int) {}
