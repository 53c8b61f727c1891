package records

import (
	"context"
	"time"
)

// Limits of one row. A store refuses more with an [InvalidError] before any
// statement is sent.
const (
	MaxFieldBytes   = 64 << 10 // realm, key, operation, resource: each
	MaxHeaderBytes  = 1 << 20  // all headers of a response, in stored form
	MaxBodyBytes    = 64 << 20 // a response's body
	MaxRequestBytes = 64 << 20 // a stored request
)

// DefaultGrace is how long an expired record is still remembered, so that a
// client's last retry does not race the purge.
const DefaultGrace = 10 * time.Minute

// Store keeps records and executors.
//
// Every method is one atomic decision, safe for concurrent use, and returns
// only once what it reports is durable. A cancelled context makes the caller
// return early with the context's cause; the write may still land. Besides
// the errors named at each method, any may return [ErrUnavailable], which is
// always safe to retry with the same arguments, and those that take input
// [ErrInvalid].
type Store interface {
	Executors
	Records
	Audit
	Interventions

	// Fleet reads the cluster row.
	Fleet(ctx context.Context) (Fleet, error)
	// Rekey gives the store another cluster id, if it now has from; else
	// ErrWrongCluster. For a restored copy, which must not join the original's
	// fleet. It leaves an event that names the operator, in its transaction.
	Rekey(ctx context.Context, from, to, operator string) error
	// Close waits for what is queued and lets go of the database.
	Close() error
}

// Executors is the part of a store about who runs.
type Executors interface {
	// Register adds an active executor. If the slot is held by an active or
	// draining boot other than Replaces, or by Replaces but with another beat
	// or a lease that its policy protects, nothing changes and the error is a
	// [SlotTakenError] with the holder. Otherwise the holder is fenced in the
	// same transaction. Repeated with the same id it returns the row.
	Register(ctx context.Context, r Registration) (Executor, error)
	// Heartbeat adds a beat to an active or draining executor and returns its
	// row, with Erasures. ErrNotActive: it is fenced, gone or unknown.
	Heartbeat(ctx context.Context, id ExecutorID) (Executor, error)
	// Drain moves active to draining; repeated it does nothing. ErrNotActive:
	// it is fenced or gone.
	Drain(ctx context.Context, id ExecutorID) error
	// Retire moves draining to gone; repeated it does nothing. ErrNotActive:
	// it is active or fenced.
	Retire(ctx context.Context, id ExecutorID) error
	// Attest notes that a peer has just reached the executor at its URL, or,
	// with proven false, that it could not. ErrNotActive: it is terminal.
	Attest(ctx context.Context, id ExecutorID, proven bool) error
	// LoadExecutor reads one executor, of any state. ErrNotFound.
	LoadExecutor(ctx context.Context, id ExecutorID) (Executor, error)
	// ListExecutors reads all executors in the given states, all states if
	// none is given, in order of slot and then of first heartbeat.
	ListExecutors(ctx context.Context, states ...ExecutorState) ([]Executor, error)
	// Fence declares the suspect dead and returns its row. With a nil error
	// the row is terminal, by this call or before it. Else nothing changed:
	// ErrRefuted, ErrLeaseHeld, ErrObserverUnfit, ErrBraked, ErrNotFound.
	Fence(ctx context.Context, s Suspicion) (Executor, error)
	// FenceByOperator fences at a person's word: with force whatever the
	// policy, else only when the lease has expired (ErrLeaseHeld). Neither
	// observer nor brake is asked. A fence leaves an event, in its transaction.
	// Errors otherwise as Fence.
	FenceByOperator(ctx context.Context, c Condemnation) (Executor, error)
	// PurgeExecutors deletes executors that are terminal, have not beaten for
	// longer than age, and hold no record in progress. It returns how many.
	PurgeExecutors(ctx context.Context, age time.Duration) (int, error)
}

// Records is the part of a store about what is asked and answered.
type Records interface {
	// Reserve decides in one statement who owns the key. Owned: the caller
	// does, at Record.Fence(), and must execute; a repeated call with the same
	// token says so again while that claim is in progress. Executor may be left
	// out then, for it is the caller. Not owned: Record is what stands there,
	// with its executor. ErrNotActive: nothing stands there, or what stands
	// there could be claimed, and the caller may not claim.
	Reserve(ctx context.Context, r Reservation) (Reserved, error)
	// Load reads a record with its executor. ErrNotFound.
	Load(ctx context.Context, id ID) (Held, error)
	// TakeOver moves an in-progress record from From to By and raises its
	// epoch by one. It lands only if the record is still From's, and From's
	// executor is terminal, is By itself, or signed that it is not running
	// it. ErrFenced: it is not (lost the race, or From lives); ErrNotActive:
	// By may not claim.
	TakeOver(ctx context.Context, t TakeOver) (Record, error)
	// ClaimUnknown moves an unknown record at epoch to in progress under By,
	// for a reconciler. ErrFenced: it is no longer unknown at that epoch;
	// ErrNotActive: By may not claim.
	ClaimUnknown(ctx context.Context, c UnknownClaim) (Record, error)
	// Finalize stores the response and starts its retention. ErrFenced: the
	// caller no longer holds the record. Repeated under the same fence after
	// it landed it does nothing and returns nil.
	Finalize(ctx context.Context, id ID, f Fence, o Outcome) error
	// Release frees the key: provably nothing was done. Repeats and errors as
	// Finalize.
	Release(ctx context.Context, id ID, f Fence) error
	// MarkUnknown says that nobody can tell whether the effect took place, and
	// remembers that for the retention. Repeats and errors as Finalize.
	MarkUnknown(ctx context.Context, id ID, f Fence, retention time.Duration) error

	// InProgress reads the records that an executor has in progress, in order
	// of id, after the given one, at most limit. Without Response.
	InProgress(ctx context.Context, id ExecutorID, after ID, limit int) ([]Record, error)
	// Orphans reads in-progress records of terminal executors, in order of id,
	// after the given one, at most limit. Without Response.
	Orphans(ctx context.Context, after ID, limit int) ([]Record, error)
	// List reads a page for an operator, in order of id, without requests and
	// bodies. A page examines a bounded number of rows, so it may be short or
	// empty with more to come.
	List(ctx context.Context, f Filter) (Page, error)
	// Purge deletes at most limit records whose retention and grace have
	// passed, none of them in progress. It returns how many. Each deletion is
	// a decision of its own: a store may go piece by piece and rest between,
	// so that nobody is held up, and stops early when ctx ends.
	Purge(ctx context.Context, limit int) (int, error)
}

// Fleet is the one row that all nodes of a cluster share.
type Fleet struct {
	Cluster   string // also in every node's configuration; a mismatch refuses to start
	Schema    int    // number of the last migration applied
	MinBinary int    // oldest binary schema number this store admits
}

// Reservation asks for a key.
type Reservation struct {
	ID          ID
	Realm       string
	Key         string
	Operation   string
	Resource    string
	Fingerprint Fingerprint
	Request     []byte // nil: not stored

	By      ExecutorID
	Attempt Token // the same for every retry of this reservation
}

// Reserved is the answer to a reservation.
type Reserved struct {
	Owned bool
	Held
}

// Held is a record and the executor it names. Executor is the zero value if
// its row was purged, which happens only to records not in progress.
type Held struct {
	Record   Record
	Executor Executor
}

// TakeOver asks for another executor's record.
type TakeOver struct {
	ID      ID
	From    Fence
	By      ExecutorID
	Attempt Token // the same for every retry of this take-over
	// SignedNotRunning: From's executor answered, with its signature, that it
	// is not running this record.
	SignedNotRunning bool
}

// UnknownClaim asks for a record whose outcome is unknown.
type UnknownClaim struct {
	ID      ID
	Epoch   int64
	By      ExecutorID
	Attempt Token // the same for every retry of this claim
}

// Outcome is a response and how long to remember it.
type Outcome struct {
	Response  Response
	Retention time.Duration
}

// Suspicion is an observer's case against an executor. The zero value demands
// the most: an expired lease.
type Suspicion struct {
	Suspect ExecutorID
	Beat    int64 // the suspect's beat at the first failed probe, or when seen stale
	// Probed: the suspicion is a confirmed failed probe. It counts only
	// against an executor with PolicyProbe; any other needs an expired lease.
	// False is the stale-heartbeat path, which needs an expired lease
	// whatever the policy and an observer with a lease-long unbroken run.
	Probed bool
	// BeatUnchanged: by the observer's monotonic clock Beat has stood for
	// longer than the suspect's lease. It replaces the expired lease if, and
	// only if, the suspect's last heartbeat lies in the future because the
	// database's clock stepped back.
	BeatUnchanged bool

	Observer      ExecutorID
	ObserverBeat  int64 // the observer's own beat at the first failure
	ObserverBeats int64 // how many of its beats must have landed since: 0 after a refused connection, 2 after silence
	Reason        string
}

// Filter selects records for an operator. Zero fields do not filter.
type Filter struct {
	Realm     *string
	Key       *string
	Operation *string
	State     State
	Executor  ExecutorID
	OlderThan time.Duration // created at least so long ago, database clock

	After ID  // exclusive; the Next of the page before
	Limit int // rows in a page, 1 to 1000
}

// Page is a part of a listing.
type Page struct {
	Records []Record
	Next    ID   // continue after this one
	More    bool // false: the listing ended here
}
