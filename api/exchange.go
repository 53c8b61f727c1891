package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// exchange is one keyed request on its way to its answer.
type exchange struct {
	e       *endpoint
	r       *http.Request
	key     string // as the record has it
	name    records.Key
	body    []byte
	client  client
	applied string // value of Preference-Applied; "": none

	mu    sync.Mutex
	begun bool         // some run was
	last  *run         // the last one that has ended
	chi   *chi.Context // the router's, once it was copied
}

// work is what the coordinator runs, once or, if this node loses the record
// and wins it back, again.
func (x *exchange) work(ctx context.Context) takeover.Completion {
	run := x.begin(ctx)
	defer x.ended(run) // also when the handler ends its goroutine
	run.serve(ctx)
	return run.complete()
}

func (x *exchange) ended(run *run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = run
	close(run.done)
}

// executes reports whether something was begun for this request.
func (x *exchange) executes() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun
}

// routing is a copy of what the router knows about the request: the router
// uses its own again once the request has returned. It is made when a handler
// needs it, or else before the request returns.
func (x *exchange) routing() *chi.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.chi == nil && x.e.detach {
		if routing := chi.RouteContext(x.r.Context()); routing != nil {
			x.chi = routing.Clone()
		}
	}
	return x.chi
}

// own is the last run that has ended, or nil.
func (x *exchange) own() *run {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// mark completes the header of any answer.
func (x *exchange) mark(h http.Header, m marks) {
	h[headerKey] = x.r.Header[headerKey]
	m.set(h)
	if x.applied != "" {
		h[headerApplied] = []string{x.applied}
	}
	if len(x.r.Header["Origin"]) > 0 {
		h.Add("Access-Control-Expose-Headers", exposed)
	}
	if x.e.traits.always != nil {
		x.e.traits.always(h, x.e.route.Retention)
	}
}

// run is one execution of the handler under one claim.
type run struct {
	x         *exchange
	claim     takeover.Claim
	capture   *capture
	expires   time.Time
	completed takeover.CompletionKind
	done      chan struct{}

	mu        sync.Mutex
	fault     *fault            // why there is no response, or not all of it
	committed *records.Response // the handler has finalized the record itself, with this
	told      *records.Response // what its client is told then, unless the handler answers
	doubtful  bool              // else: the handler may have finalized it, with something
	result    *records.Response // what is or would be stored; nil: nothing came of it
	finished  bool              // complete was reached
}

// fault is why a run did not come to a response.
type fault struct {
	untouched bool // provably nothing was sent or done
	abort     bool // the client's connection is to be cut, as http.ErrAbortHandler asks
	answered  bool // the handler has answered all the same, and that stands
	code      code
	reason    string
}

func (x *exchange) begin(ctx context.Context) *run {
	x.mu.Lock()
	x.begun = true
	x.mu.Unlock()
	claim, _ := takeover.ClaimFrom(ctx)
	run := &run{x: x, claim: claim, done: make(chan struct{})}
	run.capture = newCapture(&x.client, x.e.route.MaxResponseBytes, run.mark)
	run.capture.over = run.done
	if x.e.prepare != nil {
		x.e.prepare(run.capture)
	}
	return run
}

// serve runs the handler to its end, however it ends.
func (u *run) serve(ctx context.Context) {
	// A client that does not read must not hold up work that was cancelled.
	unhook := context.AfterFunc(ctx, u.x.client.cut)
	defer unhook()
	returned := false
	defer func() {
		if p := recover(); p != nil {
			u.panicked(ctx, p)
		} else if !returned {
			u.fail(fault{code: codeExecutionFailed, reason: "handler ended its goroutine"})
		}
		u.capture.close(returned)
	}()
	u.x.e.next.ServeHTTP(u.capture, u.request(ctx))
	returned = true
}

// request is the client's, with the body that was read, under the work's
// context.
func (u *run) request(ctx context.Context) *http.Request {
	ctx = records.WithExecution(ctx, &Execution{u})
	var r *http.Request
	if u.x.e.detach {
		if routing := u.x.routing(); routing != nil {
			ctx = context.WithValue(ctx, chi.RouteCtxKey, routing)
		}
		r = u.x.r.Clone(ctx) // the handler may outlive whoever looks at the original
	} else {
		r = u.x.r.WithContext(ctx) // the gateway makes its own copy
	}
	r.Body = io.NopCloser(bytes.NewReader(u.x.body))
	r.ContentLength, r.TransferEncoding = int64(len(u.x.body)), nil
	return r
}

func (u *run) panicked(ctx context.Context, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		u.fail(fault{abort: true, code: codeExecutionFailed, reason: "handler aborted"})
		return
	}
	u.x.e.api.config.Logger.ErrorContext(ctx, "handler panicked", "record", u.claim.Record.ID, "route", u.x.e.route.Operation,
		"panic", p, "stack", string(debug.Stack()))
	u.fail(fault{code: codeExecutionFailed, reason: fmt.Sprintf("handler panicked: %v", p)})
}

// fail notes why there is no response; the first reason counts.
func (u *run) fail(f fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fault == nil {
		u.fault = &f
	}
}

// complete says what the run came to.
func (u *run) complete() takeover.Completion {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.finished = true
	c := u.judge()
	u.completed = c.Kind
	if c.Kind == takeover.Completed || c.Kind == takeover.Committed {
		u.result = &c.Response
		u.expires = time.Now().Add(u.x.e.route.Retention)
	}
	return c
}

func (u *run) judge() takeover.Completion {
	route, c := u.x.e.route, u.capture
	if u.committed != nil {
		return takeover.Completion{Kind: takeover.Committed, Response: *u.committed}
	}
	if u.doubtful {
		u.fault = &fault{code: codeExecutionFailed, reason: "commit in doubt"}
		return takeover.Completion{Reason: u.fault.reason}
	}
	if u.fault == nil && !c.complete() {
		u.fault = &fault{abort: true, code: codeExecutionFailed, reason: "response shorter than its Content-Length"}
	}
	if u.fault != nil {
		return u.judgeFault()
	}
	switch judgeStatus(c.status, c.sent.Get("Retry-After") != "", route.OnServerError) {
	case takeover.Untouched:
		return takeover.Completion{Kind: takeover.Untouched, Reason: "status " + strconv.Itoa(c.status)}
	case takeover.Uncertain:
		return takeover.Completion{Reason: "status " + strconv.Itoa(c.status)}
	case takeover.Completed, takeover.Committed:
	}
	return takeover.Completion{Kind: takeover.Completed, Response: route.kept(c.response(route.SecretResponse))}
}

// judgeFault is what a run without a response came to. What the client can be
// told of it may be stored; half a response, or a cut connection, may not.
func (u *run) judgeFault() takeover.Completion {
	f := u.fault
	switch {
	case f.untouched, u.x.e.route.OnServerError == ServerErrorRelease:
		return takeover.Completion{Kind: takeover.Untouched, Reason: f.reason}
	case u.x.e.route.OnServerError == ServerErrorStore && !f.abort && u.capture.kept():
		return takeover.Completion{Kind: takeover.Completed, Response: u.x.e.storedProblem(u.faultProblem())}
	}
	return takeover.Completion{Reason: f.reason}
}

func (u *run) faultProblem() problem {
	return problem{code: u.fault.code, record: u.claim.Record.ID}
}

// judgeStatus is what a response says about the effect: whether it is the
// answer, frees the key, or leaves the outcome open.
func judgeStatus(status int, retryAfter bool, onServerError ServerError) takeover.CompletionKind {
	switch {
	case freesKey(status), status == http.StatusServiceUnavailable && retryAfter:
		return takeover.Untouched
	case status < 500:
		return takeover.Completed
	case onServerError == ServerErrorStore:
		return takeover.Completed
	case onServerError == ServerErrorRelease:
		return takeover.Untouched
	}
	return takeover.Uncertain
}

// freesKey reports whether a response is about this attempt and not about the
// operation: the client was not let in, or came too early, too often or too
// slowly. 206 and 304 answer a condition of this attempt.
func freesKey(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		419, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusPartialContent, http.StatusNotModified:
		return true
	}
	return false
}

// status is what Idempotency-Status says of the run's own response.
func (u *run) status() string {
	if u.claim.Previous != (records.Fence{}) {
		return statusTakenOver
	}
	return statusExecuted
}

// final reports whether the run's response is the record's. A stream's header
// goes before its end is known.
func (u *run) final(h http.Header, status int) bool {
	if u.finished {
		return u.result != nil
	}
	return judgeStatus(status, h.Get("Retry-After") != "", u.x.e.route.OnServerError) == takeover.Completed
}

// mark completes the header of the run's own response.
func (u *run) mark(h http.Header, status int) {
	delete(h, headerStatus)
	delete(h, headerExpires)
	m, final := marks{status: u.status()}, u.final(h, status)
	switch {
	case final && u.finished:
		m.expires = u.expires
	case final:
		m.expires = time.Now().Add(u.x.e.route.Retention)
	}
	u.x.mark(h, m)
	if t := u.x.e.traits; t.answered != nil {
		t.answered(h, status, final)
	}
}
