package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Reconciler reports whether the effect of an interrupted execution took
// place. It is asked by the record's new owner, under that owner's lease, and
// must not cause the effect itself.
//
// An error, a panic, an answer after ctx has ended or one that contradicts
// itself is not a finding: it is asked again with backoff until the work
// deadline, and then the record ends unknown, with the last reason.
type Reconciler interface {
	Reconcile(ctx context.Context, r records.Record, req Request) (Finding, error)
}

// FindingKind is what a reconciler found.
type FindingKind int

const (
	// Undecidable: nobody can tell. The zero value.
	Undecidable FindingKind = iota
	// Applied: the effect took place, and Response is its answer.
	Applied
	// NotApplied: it did not, and will not any more.
	NotApplied
	// Pending: it is still under way; ask again.
	Pending
)

// String is the wire name.
func (k FindingKind) String() string {
	switch k {
	case Applied:
		return "applied"
	case NotApplied:
		return "not_applied"
	case Pending:
		return "pending"
	case Undecidable:
	}
	return "undecidable"
}

// Finding is a reconciler's answer. The zero value is Undecidable.
type Finding struct {
	Kind     FindingKind
	Response records.Response // with Applied
	After    time.Duration    // with Pending: when to ask again; 0: by backoff
	Reason   string           // for operators, unless Applied: why it is so
}

// FoundApplied is the finding that the effect took place, with its answer.
func FoundApplied(r records.Response) Finding { return Finding{Kind: Applied, Response: r} }

// FoundNotApplied is the finding that the effect did not take place.
func FoundNotApplied() Finding { return Finding{Kind: NotApplied} }

// FoundPending is the finding that it is under way; ask again after the given
// time, or by backoff if it is zero.
func FoundPending(after time.Duration) Finding { return Finding{Kind: Pending, After: after} }

// FoundUndecidable is the finding that nobody can tell, and why.
func FoundUndecidable(reason string) Finding { return Finding{Kind: Undecidable, Reason: reason} }

// validate refuses a finding that says two things.
func (f Finding) validate() error {
	switch {
	case f.Kind == Applied:
		return records.Outcome{Response: f.Response}.Validate()
	case f.Kind < Undecidable || f.Kind > Pending:
		return fmt.Errorf("finding %d is none", f.Kind)
	case f.Response.Status != 0 || f.Response.Body != nil || f.Response.Headers != nil:
		return fmt.Errorf("finding %s with a response", f.Kind)
	}
	return nil
}

// because is why a record ends unknown, for whoever will have to find out.
func (f Finding) because(r Recovery) string {
	why := f.Kind.String()
	if f.Reason != "" {
		why += ": " + f.Reason
	}
	switch {
	case r.Takeovers > r.Limit:
		return fmt.Sprintf("given up after %d take-overs", r.Takeovers)
	case f.Kind == Undecidable:
		return why
	case r.Late:
		return "no finding until the work deadline; the last answer was " + why
	}
	return why
}

// joinReasons is one reason of two, of which each may be missing.
func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

var errGoroutineEnded = errors.New("reconciler ended its goroutine")

// ReconcilerFunc is a function as a Reconciler.
type ReconcilerFunc func(ctx context.Context, r records.Record, req Request) (Finding, error)

// Reconcile calls f.
func (f ReconcilerFunc) Reconcile(ctx context.Context, r records.Record, req Request) (Finding, error) {
	return f(ctx, r, req)
}

// Reexecute is the reconciler for work that is safe to repeat: the service
// de-duplicates on the forwarded key, or an unfinished record proves an
// unfinished effect because both commit in one transaction (the join of
// records/postgres). It finds
// NotApplied at once, so its route needs no settle time.
var Reexecute = ReconcilerFunc(func(context.Context, records.Record, Request) (Finding, error) {
	return FoundNotApplied(), nil
})

// erased reports whether an operator has erased what a record says. Without its
// key nobody can be asked about it.
func erased(r records.Record) bool { return r.Key == "" }

// restored is a record as a reconciler and the work are to see it: what was
// erased of it is what its duplicate says. The store keeps what it has.
func restored(r records.Record, req Request) records.Record {
	if erased(r) {
		r.Key, r.Resource = req.Key.Key, req.Resource
	}
	return r
}

// askNobody stands in for the reconciler of what was erased.
var askNobody = ReconcilerFunc(func(context.Context, records.Record, Request) (Finding, error) {
	return FoundUndecidable("its key was erased; only a duplicate can bring it"), nil
})
