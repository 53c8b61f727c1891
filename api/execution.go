package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Execution is what a handler under [API.Middleware] may know, and say, about
// the claim under which it runs. A store that joins the handler's transaction
// finds it by records.ExecutionFrom, and needs no help of the handler's.
type Execution struct{ run *run }

var _ records.Execution = (*Execution)(nil)

// ExecutionFrom finds the execution of the request with this context. A
// request without a key has none.
func ExecutionFrom(ctx context.Context) (*Execution, bool) {
	found, _ := records.ExecutionFrom(ctx)
	e, ok := found.(*Execution)
	return e, ok
}

// Claim is the right under which the handler runs: its record and fence.
func (e *Execution) Claim() takeover.Claim { return e.run.claim }

// Holds implements [records.Execution].
func (e *Execution) Holds() (records.ID, records.Fence) {
	return e.run.claim.Record.ID, e.run.claim.Record.Fence()
}

// Outcome is what the handler's own transaction has to store with its last
// statement so that a duplicate is answered with r, for as long as the route
// has agreed. Headers that must not be replayed are left out; of a response
// that is secret, or larger than the route keeps, only that it was there.
func (e *Execution) Outcome(r records.Response) records.Outcome {
	route := e.run.x.e.route
	c := &capture{status: r.Status, sent: unframed(r), body: r.Body, size: int64(len(r.Body))}
	o := records.Outcome{Retention: route.Retention}
	if c.size > route.MaxResponseBytes {
		o.Response = c.tombstone(route.SecretResponse)
	} else {
		o.Response = c.response(route.SecretResponse)
	}
	o.Response = route.kept(o.Response)
	if e.run.claim.Erased {
		o.Response = records.Response{Status: o.Response.Status}
	}
	return o
}

// Committed says that the handler's own transaction has stored o, the outcome
// of r. The handler need not answer: its client gets r. If it does answer its
// client gets that; whatever it writes, o stands.
func (e *Execution) Committed(o records.Outcome, r records.Response) {
	told := records.Response{Status: r.Status, Body: append([]byte{}, r.Body...)}
	h := unframed(r)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			told.Headers = append(told.Headers, records.Header{Name: name, Value: v})
		}
	}
	e.run.mu.Lock()
	defer e.run.mu.Unlock()
	e.run.committed, e.run.told = &o.Response, &told
}

// Doubtful implements [records.Execution]: what the handler answers is not what a
// duplicate is told, so nobody is told it.
func (e *Execution) Doubtful() {
	e.run.mu.Lock()
	defer e.run.mu.Unlock()
	e.run.doubtful = true
}

// unframed is a response's header without what says how its bytes are framed.
func unframed(r records.Response) http.Header {
	h := make(http.Header, len(r.Headers))
	for _, x := range r.Headers {
		h.Add(x.Name, x.Value)
	}
	for _, name := range []string{"Connection", "Content-Length", "Transfer-Encoding"} {
		h.Del(name)
	}
	return h
}

// Untouched says that nothing was done and nothing will be, so that the key is
// free again, whatever the status of the response.
func (e *Execution) Untouched(reason string) {
	e.run.fail(fault{untouched: true, answered: true, code: codeExecutionFailed, reason: reason})
}
