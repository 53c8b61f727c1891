package takeover

import (
	"context"
	"errors"
	"time"

	"github.com/probate-dev/probate/records"
)

// Request is one keyed request.
type Request struct {
	Key         records.Key
	Operation   string
	Resource    string
	Fingerprint records.Fingerprint
	Stored      []byte        // kept in the record, where the work must be repeatable without the client
	Wait        time.Duration // how long a duplicate waits for the answer; 0: not at all
	Terms       Terms
}

// Terms are what a route has agreed for its operations.
type Terms struct {
	Retention        time.Duration // of a response; default 24h
	UnknownRetention time.Duration // of an unknown outcome; default 30 days
	WorkTimeout      time.Duration // of one execution, and of reconciling one; default 5m
	// Settle is how long after the predecessor was fenced, or signed that it
	// was not running, NotApplied counts only as Pending: its last request may
	// still be on its way through the service. 0: the reconciler can tell.
	Settle     time.Duration
	Reconciler Reconciler // nil: nobody can tell
}

// Default terms.
const (
	DefaultRetention        = 24 * time.Hour
	DefaultUnknownRetention = 30 * 24 * time.Hour
	DefaultWorkTimeout      = 5 * time.Minute
)

func (t Terms) withDefaults() Terms {
	setDefault(&t.Retention, DefaultRetention)
	setDefault(&t.UnknownRetention, DefaultUnknownRetention)
	setDefault(&t.WorkTimeout, DefaultWorkTimeout)
	return t
}

// Work executes an operation, once. Its context is detached from the client's
// and ends, with a cause, when this node stops trusting its lease, when the
// executor was fenced, or at the work timeout. It must return soon after. It
// finds its claim with [ClaimFrom].
type Work func(ctx context.Context) Completion

// Claim is the right under which work runs.
type Claim struct {
	Record   records.Record // as claimed
	Previous records.Fence  // whose execution was taken over; zero at a first claim
	// Erased: an operator has erased what the record said. What Record says of
	// key and resource is what the duplicate has brought, and of the answer no
	// more than the status may be stored: who erases again would not find it.
	Erased bool
}

type claimKey struct{}

// held is a claim, and the boot and the stretch of its lease under which the
// work began.
type held struct {
	claim Claim
	boot  *boot
	lease context.Context
}

func withClaim(ctx, lease context.Context, c Claim, b *boot) context.Context {
	return context.WithValue(ctx, claimKey{}, held{c, b, lease})
}

// ClaimFrom returns the claim under which the context's work runs.
func ClaimFrom(ctx context.Context) (Claim, bool) {
	h, ok := ctx.Value(claimKey{}).(held)
	return h.claim, ok
}

// BeforeEffect waits until an effect may begin: until this node's last
// heartbeat is young enough. That holds when work starts. Work that comes to
// its effect late, or has several, calls it before each of them; otherwise,
// under policy probe, an effect may begin after others gave this node up. The
// error is why it may not: the cause of ctx, or that ctx is not of work.
func BeforeEffect(ctx context.Context) error {
	h, ok := ctx.Value(claimKey{}).(held)
	if !ok {
		return errNoWork
	}
	if _, err := h.boot.awaitStart(ctx, 0); err != nil {
		return err
	}
	if h.lease.Err() != nil {
		return context.Cause(h.lease)
	}
	return context.Cause(ctx)
}

var errNoWork = errors.New("the context is not that of work under a claim")

// CompletionKind is how work ended.
type CompletionKind int

const (
	// Uncertain: begun, and nobody knows what came of it. The zero value.
	Uncertain CompletionKind = iota
	// Completed: Response is the answer.
	Completed
	// Committed: as Completed, and the work has already finalized the record
	// in its own transaction.
	Committed
	// Untouched: provably nothing was sent or done; the key is free again.
	Untouched
)

// Completion is how work ended.
type Completion struct {
	Kind     CompletionKind
	Response records.Response // with Completed and Committed; with the others what the first caller is told
	Reason   string           // why it is Uncertain, or ended unknown; for operators

	overdue bool // it has not ended: the work goes on, unheard
}

// OutcomeKind is how a request was answered.
type OutcomeKind int

const (
	// InProgress: it runs, or may run; ask again after RetryAfter. The zero
	// value.
	InProgress OutcomeKind = iota
	// Executed: by this request.
	Executed
	// Replayed: it was finalized before this request came.
	Replayed
	// Waited: it was finalized while this request waited.
	Waited
	// TookOver: this request executed it after a take-over.
	TookOver
	// Reconciled: the effect of an interrupted execution was found applied.
	Reconciled
	// Reused: the key was used for another request.
	Reused
	// OutcomeUnknown: it was executed, and nobody can tell what came of it.
	OutcomeUnknown
)

// String is the name for logs and metrics.
func (k OutcomeKind) String() string {
	switch k {
	case InProgress:
		return "in_progress"
	case Executed:
		return "executed"
	case Replayed:
		return "replayed"
	case Waited:
		return "waited"
	case TookOver:
		return "taken_over"
	case Reconciled:
		return "reconciled"
	case Reused:
		return "reused"
	case OutcomeUnknown:
		return "outcome_unknown"
	}
	return "invalid"
}

// Answer is what a request is told.
type Answer struct {
	Outcome    OutcomeKind
	Record     records.Record // as last known; the zero Record if the store was not asked
	Completion Completion     // with Executed and TookOver: what the work returned
	RetryAfter time.Duration  // with InProgress
}

// Errors of Node.Do.
var (
	// ErrNotServing: this node claims nothing now: it starts, drains, was
	// fenced or cannot reach the store. Nothing was executed; another node may
	// be asked at once.
	ErrNotServing = errors.New("node is not serving")
	// ErrLeaseLost is the cause of a work context that ended because no
	// heartbeat landed in time.
	ErrLeaseLost = errors.New("lease may have expired")
	// ErrExecutorFenced is the cause of a work context that ended because this
	// executor was declared dead.
	ErrExecutorFenced = errors.New("executor was fenced")
	// ErrStopped is the cause of a work context that ended because the node
	// was told to stop at once.
	ErrStopped = errors.New("node was stopped")
	// ErrWorkTimeout is the cause of a work context that ran out of time.
	ErrWorkTimeout = errors.New("work timeout")
	// ErrSlotInUse: another live process holds this slot.
	ErrSlotInUse = errors.New("slot is in use by a live executor")
	// ErrReplaced: a newer boot of this slot fenced this one. It never
	// registers again.
	ErrReplaced = errors.New("replaced by a newer boot of the slot")
	// ErrURLTaken: this node's URL answers as another executor.
	ErrURLTaken = errors.New("advertised URL answers as another executor")
)
