package takeover

import (
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// Events is told what happened, for metrics and audit. Calls are made on the
// path of the event and must not block. A record is as it was known then.
type Events interface {
	// Claimed: a first execution begins here.
	Claimed(r records.Record)
	// Waited: requests of this node begin to wait on the record's executor.
	Waited(r records.Record)
	// Probed: the record's executor was asked about it.
	Probed(r records.Record, v probe.Verdict)
	// Fenced: this node declared an executor dead.
	Fenced(executor records.ExecutorID, reason string)
	// TookOver: this node owns the record now.
	TookOver(r records.Record, reason string)
	// Reconciled: a reconciler was asked.
	Reconciled(r records.Record, f Finding)
	// Settled: this node brought the record to an end. The reason may be empty;
	// it is why, where that is not plain.
	Settled(r records.Record, to records.State, took time.Duration, reason string)
	// Purged: expired records were deleted.
	Purged(count int)
}

// NoEvents ignores everything; embed it to hear only some.
type NoEvents struct{}

// Claimed does nothing.
func (NoEvents) Claimed(records.Record) {}

// Waited does nothing.
func (NoEvents) Waited(records.Record) {}

// Probed does nothing.
func (NoEvents) Probed(records.Record, probe.Verdict) {}

// Fenced does nothing.
func (NoEvents) Fenced(records.ExecutorID, string) {}

// TookOver does nothing.
func (NoEvents) TookOver(records.Record, string) {}

// Reconciled does nothing.
func (NoEvents) Reconciled(records.Record, Finding) {}

// Settled does nothing.
func (NoEvents) Settled(records.Record, records.State, time.Duration, string) {}

// Purged does nothing.
func (NoEvents) Purged(int) {}
