package takeover

import (
	"context"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// Query asks something that keeps account of what was done, such as a database
// (postgres.Query), what became of an operation.
type Query interface {
	Ask(ctx context.Context, r records.Record, previous records.ExecutorID) (records.Account, error)
}

// Asking is the reconciler that asks q. Its not applied says no more than that
// nothing is there yet, so its route needs a settle time.
func Asking(q Query) Reconciler {
	return ReconcilerFunc(func(ctx context.Context, r records.Record, _ Request) (Finding, error) {
		a, err := q.Ask(ctx, r, Interrupted(ctx, r))
		if err != nil {
			return Finding{}, err
		}
		kind, err := ParseFinding(a.Finding)
		return Finding{Kind: kind, Response: a.Response, Reason: a.Reason}, err
	})
}

// ParseFinding reads a wire name.
func ParseFinding(name string) (FindingKind, error) {
	for k := Undecidable; k <= Pending; k++ {
		if k.String() == name {
			return k, nil
		}
	}
	return Undecidable, fmt.Errorf("finding %q is none of applied, not_applied, pending, undecidable", name)
}

// Interrupted is whose execution of the record was interrupted, for a
// reconciler with this context: its predecessor's, or this executor's own.
func Interrupted(ctx context.Context, r records.Record) records.ExecutorID {
	if claim, ok := ClaimFrom(ctx); ok && claim.Previous != (records.Fence{}) {
		return claim.Previous.Executor
	}
	return r.Executor
}
