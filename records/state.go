package records

import "slices"

// State is where a record stands.
type State string

const (
	// InProgress: Executor holds it at Epoch. It has no expiry.
	InProgress State = "in_progress"
	// Finalized: Response is the answer, unchanged until it expires.
	Finalized State = "finalized"
	// Unknown: it was executed, perhaps; nobody can tell what came of it.
	Unknown State = "unknown"
	// Released: provably nothing was done; the key is free.
	Released State = "released"
)

// recordMoves are the legal moves of executors. A move to InProgress raises the
// epoch; from Finalized it needs the retention and its grace to have passed,
// from Unknown that or a claim, for a reconciler. What an operator may do
// besides is at [Interventions].
var recordMoves = map[State][]State{
	InProgress: {InProgress, Finalized, Unknown, Released},
	Finalized:  {InProgress},
	Unknown:    {InProgress},
	Released:   {InProgress},
}

// CanBecome reports whether a record may go from s to next.
func (s State) CanBecome(next State) bool { return slices.Contains(recordMoves[s], next) }

// Valid reports whether s is a state at all.
func (s State) Valid() bool { _, ok := recordMoves[s]; return ok }

// ExecutorState is where an executor stands.
type ExecutorState string

const (
	// Active: it may claim records.
	Active ExecutorState = "active"
	// Draining: it finishes what it has and claims nothing.
	Draining ExecutorState = "draining"
	// Gone: it left by itself. Terminal.
	Gone ExecutorState = "gone"
	// Fenced: it was declared dead. Terminal, even if it was not.
	Fenced ExecutorState = "fenced"
)

var executorMoves = map[ExecutorState][]ExecutorState{
	Active:   {Draining, Fenced},
	Draining: {Gone, Fenced},
	Gone:     {},
	Fenced:   {},
}

// CanBecome reports whether an executor may go from s to next.
func (s ExecutorState) CanBecome(next ExecutorState) bool {
	return slices.Contains(executorMoves[s], next)
}

// Valid reports whether s is a state at all.
func (s ExecutorState) Valid() bool { _, ok := executorMoves[s]; return ok }

// Terminal reports whether an executor in s can never act again.
func (s ExecutorState) Terminal() bool { return s == Gone || s == Fenced }
