package api

import (
	"context"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

type executionKey struct{}

// Execution is what a handler under [API.Middleware] may know, and say, about
// the claim under which it runs.
type Execution struct{ run *run }

// ExecutionFrom finds the execution of the request with this context. A
// request without a key has none.
func ExecutionFrom(ctx context.Context) (*Execution, bool) {
	e, ok := ctx.Value(executionKey{}).(*Execution)
	return e, ok
}

// Claim is the right under which the handler runs: its record and fence.
func (e *Execution) Claim() takeover.Claim { return e.run.claim }

// Outcome is what the handler's own transaction has to store with its last
// statement so that a duplicate is answered with r, for as long as the route
// has agreed. Headers that must not be replayed are left out.
func (e *Execution) Outcome(r records.Response) records.Outcome {
	h := make(map[string][]string, len(r.Headers))
	for _, x := range r.Headers {
		h[x.Name] = append(h[x.Name], x.Value)
	}
	r.Headers = storable(h, nil)
	if r.Body == nil {
		r.Body = []byte{}
	}
	return records.Outcome{Response: r, Retention: e.run.x.e.route.Retention}
}

// Committed says that the handler's own transaction has stored o as the
// record's outcome. The handler then writes the response to its client as
// usual; whatever it writes, o stands.
func (e *Execution) Committed(o records.Outcome) {
	e.run.mu.Lock()
	defer e.run.mu.Unlock()
	e.run.committed = &o.Response
}

// Untouched says that nothing was done and nothing will be, so that the key is
// free again, whatever the status of the response.
func (e *Execution) Untouched(reason string) {
	e.run.fail(fault{untouched: true, answered: true, code: codeExecutionFailed, reason: reason})
}
