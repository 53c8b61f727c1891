package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Middleware puts the route's keyed requests under the coordinator before they
// reach a handler. The handler runs detached from its client, with the request
// read into memory; it finds its claim with [ExecutionFrom] or
// takeover.ClaimFrom. Requests without a key, of other methods, and upgrades
// pass through untouched.
//
// The router that leads here has matched already: the route's path is not
// looked at, and {name} in its resource and realm is the request's PathValue.
func (a *API) Middleware(route Route) (func(http.Handler) http.Handler, error) {
	route = route.withDefaults(a.config)
	var f faults
	route.validate(f.at(""))
	if err := f.join(); err != nil {
		return nil, err
	}
	e, err := a.newEndpoint(route)
	if err != nil {
		return nil, err
	}
	e.detach = true
	if !a.register(e) {
		return nil, &FieldError{Path: "operation", Reason: fmt.Sprintf("%q is another route's already", route.Operation)}
	}
	return func(next http.Handler) http.Handler {
		with := *e
		with.next, with.pass = next, next
		return &with
	}, nil
}

// endpoint is a route made ready.
type endpoint struct {
	api         *API
	route       Route
	traits      traits
	terms       takeover.Terms
	reconciler  takeover.Reconciler // as it is; in terms it leaves out what the route does not keep
	fingerprint fingerprinter
	principal   principalReader
	authorize   *authorizer
	next        http.Handler           // executes
	pass        http.Handler           // for what is not recorded
	prepare     func(capture *capture) // before a run; nil: nothing
	detach      bool                   // next is somebody's own: it may look at what is reused once this request has returned
}

func (a *API) newEndpoint(r Route) (*endpoint, error) {
	r.Redact = redacted(a.config.Redact, r.Redact)
	e := &endpoint{api: a, route: r, traits: profiles[r.Profile]}
	var err error
	if e.fingerprint, err = newFingerprinter(r.Operation, r.Fingerprint); err != nil {
		return nil, err
	}
	e.principal = a.newPrincipal(r.Principal)
	if r.Authorize != nil {
		e.authorize = newAuthorizer(*r.Authorize, a.outside)
	}
	e.terms = takeover.Terms{
		Retention: r.Retention, UnknownRetention: r.UnknownRetention, WorkTimeout: r.WorkTimeout,
		Settle: r.Settle,
	}
	e.reconciler = newReconciler(r, a.outside)
	e.terms.Reconciler = r.discreetly(e.reconciler)
	return e, nil
}

// ServeHTTP implements [http.Handler].
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	values, keyed := r.Header[headerKey]
	if !e.records(r) {
		if keyed {
			w.Header()[headerStatus] = []string{statusBypassed}
		}
		e.pass.ServeHTTP(w, r)
		return
	}
	if !keyed && !e.route.Required {
		e.pass.ServeHTTP(w, r)
		return
	}
	begun, outcome := time.Now(), "aborted"
	defer func() { e.api.config.Events.Answered(e.route.Operation, outcome, time.Since(begun)) }()
	x := &exchange{e: e, r: r, client: client{w: w}}
	outcome = x.serve(r.Context(), w, values)
}

// records reports whether such a request may be recorded at all.
func (e *endpoint) records(r *http.Request) bool {
	if neverRecorded(r.Method) || len(e.route.Methods) > 0 && !slices.Contains(e.route.Methods, r.Method) {
		return false
	}
	return !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// serve takes a keyed request to its answer and returns how it was answered.
func (x *exchange) serve(ctx context.Context, w http.ResponseWriter, values []string) (outcome string) {
	req, p := x.read(w, values)
	if p != nil {
		return x.problem(w, *p)
	}
	x.name = req.Key
	answer, err := x.e.api.config.Coordinator.Do(ctx, req, x.work)
	if err != nil {
		x.routing() // the work may go on, or begin, when this request is no more
	}
	return x.conclude(ctx, w, answer, err)
}

// read makes the coordinator's request of the client's. Whatever is wrong with
// it is found before the store is asked.
func (x *exchange) read(w http.ResponseWriter, values []string) (req takeover.Request, p *problem) {
	e, r := x.e, x.r
	if len(values) == 0 {
		return req, &problem{code: codeKeyMissing}
	}
	if x.key, p = parseKey(values); p != nil {
		return req, p
	}
	if e.traits.key != nil {
		if x.key, p = e.traits.key(x.key); p != nil {
			return req, p
		}
	}
	req.Key.Key = x.key
	if req.Key.Realm, p = e.route.Realm.of(r); p != nil {
		return req, p
	}
	var named string
	if e.authorize != nil {
		if named, p = e.authorize.ask(r); p != nil {
			return req, p
		}
	}
	if req.Key.Principal, p = e.principal(r, named); p != nil {
		return req, p
	}
	if x.body, p = readBody(w, r, e.route.MaxRequestBytes); p != nil {
		return req, p
	}
	req.Operation = e.route.Operation
	req.Resource = expand(e.route.Resource, func(name string) string { return pathValue(r, name) })
	if len(req.Resource) > records.MaxFieldBytes {
		return req, &problem{code: codeRequestInvalid, detail: "The path is too long."}
	}
	req.Fingerprint = e.fingerprint.of(r, x.body)
	req.Wait = x.wait()
	req.Terms = e.terms
	if l, ok := e.reconciler.(*look); ok {
		req.Terms.Reconciler = e.route.discreetly(l.with(x))
	}
	return req, nil
}

// wait is how long this request waits if it is a duplicate.
func (x *exchange) wait() time.Duration {
	route := x.e.route
	if route.OnInProgress == InProgressReject {
		return 0
	}
	seconds, ok := preferredWait(x.r.Header)
	if !ok {
		return route.Wait.Default
	}
	wait := min(time.Duration(seconds)*time.Second, route.Wait.Max)
	x.applied = "wait=" + strconv.Itoa(int(wait/time.Second))
	return wait
}

// readBody reads the whole body, up to max bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *problem) {
	tooLarge := &problem{code: codeRequestTooLarge, detail: "At most " + strconv.FormatInt(limit, 10) + " bytes are recorded here."}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // or net/http reads on
		return nil, tooLarge
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	// A length is a promise that costs its maker nothing: memory grows with
	// what really comes.
	body := make([]byte, 0, max(min(r.ContentLength+1, 64<<10), 512))
	limited := r.Body
	if r.ContentLength < 0 {
		limited = http.MaxBytesReader(w, r.Body, limit)
	}
	for {
		n, err := limited.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			if _, over := errors.AsType[*http.MaxBytesError](err); over {
				return nil, tooLarge
			}
			return nil, &problem{code: codeRequestIncomplete}
		case len(body) == cap(body):
			body = slices.Grow(body, len(body))
		}
	}
}

// forwardedKey is the key as the upstream gets it: as it came, unless several
// spellings are the same key.
func (x *exchange) forwardedKey() string {
	if x.e.traits.key != nil {
		return x.key
	}
	return x.r.Header.Get(headerKey)
}
