package records

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// EventKind is what happened to a record, an executor or the fleet.
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
	EventResolved   EventKind = "resolved" // by an operator, as all below
	EventErased     EventKind = "erased"
	EventTerminated EventKind = "terminated" // a data flow
	EventPurged     EventKind = "purged"
	EventRekeyed    EventKind = "rekeyed"
)

// Event is a line of the audit.
type Event struct {
	At       time.Time // when it happened, database clock
	Kind     EventKind
	Record   ID         // zero: about no record
	Epoch    int64      // of the record then; 0: about no record
	Executor ExecutorID // whom it is about, or who did it; zero: nobody
	Actor    string     // who did it: an operator's name; empty: a node, by itself
	Reason   string     // in words
	Before   string     // state before, where somebody changed it
	After    string     // state after
}

// Occurrence is what a node saw happen, to be noted as an event. It has no
// instant: when it happened is told by the database's clock, and Ago.
type Occurrence struct {
	Ago      time.Duration // how long before it is noted
	Kind     EventKind
	Record   ID
	Epoch    int64
	Executor ExecutorID
	Actor    string // the operator who asked for it; empty: the node, by itself
	Reason   string // at most MaxReasonBytes of UTF-8 without NUL are kept
	Before   string
	After    string
}

// Limits of the audit.
const (
	MaxReasonBytes = 1024  // of an event's reason
	MaxOccurrences = 1_000 // in one Note
)

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
	Next   string // continue after this one, also when there is no more yet
	More   bool
}

// Audit is the part of a store about what happened.
type Audit interface {
	// Note writes down what a node saw, all or none. What an operator does to a
	// row is noted by the operation itself, in its transaction; what a node does
	// at an operator's wish is noted here. Repeated after a lost reply it may
	// write them twice.
	Note(ctx context.Context, o []Occurrence) error
	// Events reads a page of the audit, in the order in which it was written.
	// What is written later comes after it: no page that was read would be
	// another if it were read again, but for what was purged. A page examines a
	// bounded number of events, so it may be short or empty with more to come.
	Events(ctx context.Context, f EventFilter) (EventPage, error)
	// PurgeEvents deletes at most limit events that are older than age, the
	// oldest first. It returns how many.
	PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Validate accepts a limit of 1 to 1000 and a cursor that Events has given.
func (f EventFilter) Validate() error {
	var faults faults
	faults.check(f.Limit >= 1 && f.Limit <= 1000, "limit", "want 1 to 1000")
	_, err := f.Cursor()
	faults.add(err)
	return faults.join()
}

// Cursor is the number of the event to continue after.
func (f EventFilter) Cursor() (int64, error) {
	if f.After == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(f.After, 10, 64)
	if err != nil || n < 0 {
		return 0, &InvalidError{Field: "after", Reason: "want what the page before named as its next"}
	}
	return n, nil
}

// ValidateOccurrences reports every reason why they could never be noted.
func ValidateOccurrences(all []Occurrence) error {
	var faults faults
	faults.check(len(all) <= MaxOccurrences, "events", "over 1,000 at once")
	for _, o := range all {
		faults.check(o.Ago >= 0, "ago", "negative")
		faults.check(o.Kind != "" && len(o.Kind) <= 64 && cleanText(string(o.Kind)), "kind", "want 1 to 64 bytes of UTF-8 without NUL")
		faults.check(o.Actor == "" || validateActor(o.Actor) == nil, "actor", "want at most 255 bytes of UTF-8 without NUL")
		faults.add(ValidateReason(o.Before))
		faults.add(ValidateReason(o.After))
	}
	return faults.join()
}

// Event is what is noted of it, but for the instant.
func (o Occurrence) Event() Event {
	return Event{
		Kind: o.Kind, Record: o.Record, Epoch: o.Epoch, Executor: o.Executor,
		Actor: o.Actor, Reason: CutReason(o.Reason), Before: o.Before, After: o.After,
	}
}

// CutReason is what is kept of a reason that nobody chose: what a text column
// takes, up to MaxReasonBytes.
func CutReason(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) > MaxReasonBytes {
		s = strings.ToValidUTF8(s[:MaxReasonBytes], "") // it may have cut a character in two
	}
	return s
}
