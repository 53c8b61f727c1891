package api

import (
	"time"

	"golang.org/x/net/http/httpguts"

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
	// {resource}, {realm}, {key} and {operation_ref}. 2xx: it took effect,
	// and this is its answer, under CreatedStatus (default 201). 404, 410: it
	// did not, which counts only after the route's Settle. 5xx: ask again.
	// Everything else: nobody can tell.
	Get           string
	CreatedStatus int

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

func (c Reconcile) validate(at fieldFaults, inGo bool) {
	n := 0
	for _, set := range []bool{c.URL != "", c.Get != "", c.Reexecute, inGo} {
		if set {
			n++
		}
	}
	if n > 1 {
		at.add("want at most one of url, get, reexecute")
	}
	if c.URL != "" {
		validateUpstream(at.at("url"), c.URL)
	}
	if c.Get != "" {
		if err := validateTemplate(c.Get, "resource", "realm", "key", "operation_ref"); err != nil {
			at.at("get").add("%v", err)
		} else {
			validateGet(at.at("get"), c.Get)
		}
	}
	if c.CreatedStatus != 0 && (c.CreatedStatus < 200 || c.CreatedStatus > 299 || c.CreatedStatus == 206) {
		at.at("created_status").add("want a 2xx other than 206")
	}
	if c.CreatedStatus != 0 && c.Get == "" {
		at.at("created_status").add("goes with get")
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

// newReconciler returns nil if nobody can tell.
func newReconciler(r Route, o *outside) takeover.Reconciler {
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
