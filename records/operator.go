package records

import "context"

// Interventions is what an operator may do to a record. Each is one
// transaction with the event that says who did what, and why.
type Interventions interface {
	// ReleaseByOperator frees a key: a person vouches that nothing was done, or
	// that doing it again is right. It lands only on a record that is unknown,
	// or in progress of a terminal executor, at the epoch that the person saw.
	// It returns the record as it is now. ErrFenced: it has changed or is in
	// no such state; ErrNotFound.
	ReleaseByOperator(ctx context.Context, i Intervention) (Record, error)
	// ResolveByOperator gives an unknown record the outcome that a person has
	// found out, and raises its epoch. Errors as ReleaseByOperator.
	ResolveByOperator(ctx context.Context, i Intervention, o Outcome) (Record, error)
	// Erase forgets what a page of a principal's records says: key, resource,
	// stored request, headers and body. What keeps a late duplicate from
	// running again stays until it expires: id, fingerprint, state, epoch and
	// times; such a record is a tombstone. Records in progress stay as they
	// are, and are counted.
	Erase(ctx context.Context, e Erasure) (Erased, error)
}

// Intervention says who changes which record, and why.
type Intervention struct {
	ID     ID
	Epoch  int64 // at which the person saw it
	Actor  string
	Reason string
}

// Erasure asks for a page of what a principal's records say to be forgotten.
type Erasure struct {
	Realm     string
	Principal string
	Actor     string
	Reason    string

	After ID  // exclusive; the Next of the page before
	Limit int // records of the realm that a page examines, 1 to 10000
}

// Erased is what a page of an erasure did.
type Erased struct {
	Count   int // records whose content is forgotten
	Running int // records of the principal that were in progress
	Next    ID
	More    bool
}
