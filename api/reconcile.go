package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Reconcile is how to find out over HTTP whether an interrupted execution took
// effect: by at most one of URL, Get and Reexecute. None: an interrupted
// execution ends unknown.
type Reconcile struct {
	// URL is asked by POST what became of the operation; see [Question] and
	// [Statement]. By contract the service answers pending while it still
	// works on the operation, and refuses smaller epochs afterwards.
	URL string

	// Get is a template of the URL of what the operation makes, over
	// {operation}, {resource}, {realm}, {key}, {operation_ref}, {path:NAME} (a
	// parameter of the route's path) and {json:POINTER} (a string, number or
	// boolean of the request's JSON body, RFC 6901). The last two are known
	// only while a client asks: a sweep leaves such a record unknown, and the
	// next duplicate decides. A value that is missing or empty: nobody can
	// tell.
	//
	// 2xx: it took effect, and this is its answer, under CreatedStatus (default
	// 201). 404, 410: it did not, which counts only after the route's Settle.
	// 5xx: ask again. Everything else: nobody can tell.
	Get           string
	CreatedStatus int
	// ResponseHeaders are set in the answer that Get has found, such as a
	// Location. Their values are templates as Get is, escaped as in a URL.
	ResponseHeaders map[string]string

	// Reexecute: the service recognizes the forwarded key, so that sending
	// the request again is safe.
	Reexecute bool

	Headers map[string]string // sent with URL and Get, such as Authorization
	Timeout time.Duration     // of one question; default 10s
}

// kind names what is chosen; "" is never.
func (c Reconcile) kind() string {
	switch {
	case c.URL != "":
		return "url"
	case c.Get != "":
		return "get"
	case c.Reexecute:
		return "reexecute"
	}
	return ""
}

func (c Reconcile) withDefaults() Reconcile {
	setDefault(&c.Timeout, 10*time.Second)
	if c.Get != "" {
		setDefault(&c.CreatedStatus, 201)
	}
	return c
}

func (c Reconcile) validate(at fieldFaults, r Route) {
	n := 0
	for _, set := range []bool{c.URL != "", c.Get != "", c.Reexecute, r.Reconciler != nil} {
		if set {
			n++
		}
	}
	if n > 1 {
		at.add("want at most one of url, get, reexecute, or a reconciler in Go")
	}
	if c.URL != "" {
		validateUpstream(at.at("url"), c.URL)
	}
	if c.Get != "" {
		c.validateTemplates(at, r)
	}
	if c.CreatedStatus != 0 && (c.CreatedStatus < 200 || c.CreatedStatus > 299 || c.CreatedStatus == 206) {
		at.at("created_status").add("want a 2xx other than 206")
	}
	if c.CreatedStatus != 0 && c.Get == "" {
		at.at("created_status").add("goes with get")
	}
	if len(c.ResponseHeaders) > 0 && c.Get == "" {
		at.at("response_headers").add("goes with get")
	}
	for name, value := range c.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			at.at("headers").add("%q is no header, or its value none", name)
		}
	}
	if c.Timeout < 0 {
		at.at("timeout").add("negative")
	}
}

func (c Reconcile) validateTemplates(at fieldFaults, r Route) {
	if err := validateBlanks(c.Get, r.Path); err != nil {
		at.at("get").add("%v", err)
	} else {
		validateGet(at.at("get"), c.Get)
	}
	for name, template := range c.ResponseHeaders {
		if err := validateBlanks(template, r.Path); err != nil {
			at.at("response_headers").add("%v", err)
		}
		filled := expand(template, func(string) string { return "x" })
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(filled) || neverStored[http.CanonicalHeaderKey(name)] {
			at.at("response_headers").add("%q is no header that is stored, or its value none", name)
		}
	}
	if blank := c.ignored(r.Fingerprint); blank != "" {
		at.add("{%s} is left out of the fingerprint, so two duplicates may ask about two things", blank)
	}
}

// strictly is a reconciler of the route's own maker, held to what a service is
// held to: what it finds must be a response that could have been stored.
type strictly struct {
	takeover.Reconciler
	limit int64
}

// Reconcile implements [takeover.Reconciler].
func (s strictly) Reconcile(ctx context.Context, r records.Record, req takeover.Request) (takeover.Finding, error) {
	f, err := s.Reconciler.Reconcile(ctx, r, req)
	if err != nil || f.Kind != takeover.Applied {
		return f, err
	}
	if err := checkFound(f.Response, s.limit); err != nil {
		return takeover.Finding{}, fmt.Errorf("response: %w", err)
	}
	f.Response.Headers = storable(unframed(f.Response), nil)
	return f, nil
}

// checkFound refuses a response that could not have been stored.
func checkFound(r records.Response, limit int64) error {
	switch {
	case r.Status < 200 || r.Status > 599 || freesKey(r.Status):
		return fmt.Errorf("status %d cannot be stored", r.Status)
	case int64(len(r.Body)) > limit:
		return fmt.Errorf("body has %d bytes, over %d", len(r.Body), limit)
	case len(r.Body) > 0 && !bodyAllowed(r.Status):
		return fmt.Errorf("status %d has no body", r.Status)
	}
	for _, h := range r.Headers {
		if !httpguts.ValidHeaderFieldName(h.Name) || !httpguts.ValidHeaderFieldValue(h.Value) {
			return fmt.Errorf("%q is no header, or its value none", h.Name)
		}
	}
	return nil
}

// newReconciler returns nil if nobody can tell.
func newReconciler(r Route, o *outside) takeover.Reconciler {
	if r.Reconciler != nil {
		return strictly{r.Reconciler, r.MaxResponseBytes}
	}
	switch r.Reconcile.kind() {
	case "url":
		return &inquiry{config: r.Reconcile, limit: r.MaxResponseBytes, outside: o}
	case "get":
		return &look{config: r.Reconcile, limit: r.MaxResponseBytes, outside: o}
	case "reexecute":
		return takeover.Reexecute
	}
	return nil
}
