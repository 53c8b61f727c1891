package records

import (
	"context"
	"time"
)

// EventKind is what happened to a record or an executor.
type EventKind string

// Kinds of events. By default a node notes only what is out of the ordinary:
// not every claim, wait and finalization.
const (
	EventClaimed    EventKind = "claimed"
	EventWaited     EventKind = "waited"
	EventProbed     EventKind = "probed"
	EventFenced     EventKind = "fenced"
	EventTakenOver  EventKind = "taken_over"
	EventReconciled EventKind = "reconciled"
	EventFinalized  EventKind = "finalized"
	EventUnknown    EventKind = "unknown"
	EventReleased   EventKind = "released"
	EventResolved   EventKind = "resolved" // by an operator
	EventErased     EventKind = "erased"   // by an operator
)

// Event is a line of the audit.
type Event struct {
	At       time.Time // database clock; set by the store
	Kind     EventKind
	Record   ID         // zero: about no record
	Epoch    int64      // of the record then; 0: about no record
	Executor ExecutorID // whom it is about, or who did it; zero: nobody
	Actor    string     // who did it: an operator's name; empty: a node, by itself
	Reason   string     // in words; at most MaxReasonBytes, cut
	Before   string     // state before, where somebody changed it
	After    string     // state after
}

// MaxReasonBytes is how much of an event's reason is kept.
const MaxReasonBytes = 1024

// EventFilter selects events. Zero fields do not filter.
type EventFilter struct {
	Record   ID
	Executor ExecutorID
	Kind     EventKind

	After string // exclusive; the Next of the page before
	Limit int    // events in a page, 1 to 1000
}

// EventPage is a part of the audit, the oldest first.
type EventPage struct {
	Events []Event
	Next   string // continue after this one
	More   bool
}

// Audit is the part of a store about what happened.
type Audit interface {
	// Note writes events down, all or none. It is for what nodes observe; what
	// an operator does is noted by the operation itself, in its transaction.
	// Repeated after a lost reply it may write them twice.
	Note(ctx context.Context, events []Event) error
	// Events reads a page of the audit, in the order it was written, which
	// later pages do not change.
	Events(ctx context.Context, f EventFilter) (EventPage, error)
	// PurgeEvents deletes at most limit events that are older than age. It
	// returns how many.
	PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error)
}
