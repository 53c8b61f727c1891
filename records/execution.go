package records

import "context"

// Execution is work under a claim, as a store sees it that lets the work's
// effect and the owner's last write be one transaction.
type Execution interface {
	// Holds is the record that the work may write, and the fence under which.
	Holds() (ID, Fence)
	// Outcome is what is stored so that a duplicate is answered with r, as the
	// operation's terms have it: what must not be replayed is left out.
	Outcome(r Response) Outcome
	// Committed says that the work's transaction has stored o, the outcome of
	// r: nobody else is to store anything.
	Committed(o Outcome, r Response)
	// Doubtful says that an outcome may have been stored of which the work
	// cannot say what it is: the reply to a commit was lost, or something stood
	// there already. Unless Committed is said, too, only the record can tell.
	Doubtful()
}

type executionKey struct{}

// WithExecution is ctx as the context of that work.
func WithExecution(ctx context.Context, e Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, e)
}

// ExecutionFrom finds the work whose context this is.
func ExecutionFrom(ctx context.Context) (Execution, bool) {
	e, ok := ctx.Value(executionKey{}).(Execution)
	return e, ok
}
