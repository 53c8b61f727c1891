package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Route is one operation that may carry an Idempotency-Key, and what was
// agreed for it.
type Route struct {
	// Methods are those recorded. GET, HEAD, OPTIONS and TRACE never are.
	// Under [API.Middleware] none means all others.
	Methods []string
	// Path is a chi pattern, such as /orders/{id}/payments. Under
	// [API.Middleware] the caller's router has matched already.
	Path string

	// Operation names what is done, uniquely among routes. It is part of the
	// fingerprint and is how a record of a dead node finds its route again,
	// so it should outlive a change of path. No default.
	Operation string
	// Resource is a template over the path's parameters, such as {id}.
	Resource string
	// Realm is the scope of a key besides the principal. Default: none.
	Realm Realm
	// Principal says whose key it is. No default.
	Principal Principal
	// Authorize asks a service before anything is executed or replayed. Nil:
	// nobody is asked.
	Authorize *Authorize

	Required bool    // a request without a key is refused
	Profile  Profile // how answers look; default ietf

	// Retention of a response, default 24h, and of an unknown outcome, default
	// 30 days.
	Retention, UnknownRetention time.Duration
	// WorkTimeout ends one execution. Default 5m.
	WorkTimeout time.Duration
	// Wait is how long a duplicate waits. Default: the API's.
	Wait Wait
	// OnInProgress: wait (default), or reject: a duplicate is answered at
	// once.
	OnInProgress InProgress
	// OnServerError is what a 5xx, a panic or a connection lost after sending
	// means. Default unknown; under profile stripe store.
	OnServerError ServerError

	// MaxRequestBytes and MaxResponseBytes bound the bodies that are kept.
	// A longer request is refused; a longer response reaches its first caller
	// and cannot be replayed. Default 1 MiB each; a response at most 64 MiB.
	MaxRequestBytes, MaxResponseBytes int64
	// SecretResponse: the response is for the first caller only. Of it, and of
	// what a reconciler finds, status and Location are stored, so a duplicate is
	// told that it cannot be replayed.
	SecretResponse bool
	// Redact names response headers that are never stored, besides the API's
	// and those that never are: the first caller gets them, a duplicate does
	// not.
	Redact []string

	Fingerprint FingerprintOptions

	// Reconcile is how to find out whether an interrupted execution took
	// effect; Reconciler is the same in Go, such as a takeover.ReconcilerFunc,
	// or postgres.Query, which asks a database. Neither: nobody can tell.
	Reconcile  Reconcile
	Reconciler takeover.Reconciler
	// Settle is how long not_applied is not believed after the predecessor's
	// end. Default: with Reconcile.Get the upstream's timeout, else 0.
	Settle time.Duration

	// Upstream is where the gateway sends requests: scheme, host and perhaps
	// a path before the request's own. Timeout bounds the wait for response
	// headers of a recorded request. Default 30s, or the work timeout if that
	// is shorter.
	Upstream string
	Timeout  time.Duration
}

// Profile is how keyed answers look.
type Profile string

// Profiles.
const (
	ProfileIETF    Profile = "ietf"    // problem documents, RFC 9457
	ProfileStripe  Profile = "stripe"  // Stripe's error object
	ProfileIceberg Profile = "iceberg" // Iceberg REST catalog's error object; keys are UUIDv7
)

// InProgress is what a duplicate does while the first request runs.
type InProgress string

// What a duplicate does.
const (
	InProgressWait   InProgress = "wait"
	InProgressReject InProgress = "reject"
)

// ServerError is what a server error says about the effect.
type ServerError string

// What a server error means.
const (
	// ServerErrorUnknown: nobody knows; the reconciler decides, at once.
	ServerErrorUnknown ServerError = "unknown"
	// ServerErrorStore: it is the answer, for duplicates too.
	ServerErrorStore ServerError = "store"
	// ServerErrorRelease: nothing was done; the key is free.
	ServerErrorRelease ServerError = "release"
)

// Default bounds of a route.
const (
	DefaultMaxRequestBytes  = 1 << 20
	DefaultMaxResponseBytes = 1 << 20
	DefaultTimeout          = 30 * time.Second
)

func (r Route) withDefaults(c Config) Route {
	r.Wait = r.Wait.or(c.Wait)
	setDefault(&r.Profile, ProfileIETF)
	setDefault(&r.Retention, takeover.DefaultRetention)
	setDefault(&r.UnknownRetention, takeover.DefaultUnknownRetention)
	setDefault(&r.WorkTimeout, takeover.DefaultWorkTimeout)
	setDefault(&r.OnInProgress, InProgressWait)
	setDefault(&r.OnServerError, profiles[r.Profile].serverErrors)
	setDefault(&r.MaxRequestBytes, DefaultMaxRequestBytes)
	setDefault(&r.MaxResponseBytes, DefaultMaxResponseBytes)
	setDefault(&r.Timeout, min(DefaultTimeout, r.WorkTimeout))
	if r.Reconcile.Get != "" {
		setDefault(&r.Settle, r.Timeout)
	}
	r.Reconcile = r.Reconcile.withDefaults()
	r.Methods = slices.Clone(r.Methods)
	for i, m := range r.Methods {
		r.Methods[i] = strings.ToUpper(m)
	}
	return r
}

// validate adds every fault of a route with its defaults.
func (r Route) validate(at fieldFaults) {
	for _, m := range r.Methods {
		switch {
		case neverRecorded(m):
			at.at("match.methods").add("%s is never recorded", m)
		case !httpguts.ValidHeaderFieldName(m):
			at.at("match.methods").add("%q is no method", m)
		}
	}
	validatePattern(at.at("match.path"), r.Path)
	if r.Operation == "" || len(r.Operation) > 255 {
		at.at("operation").add("want a name of 1 to 255 bytes")
	}
	if err := validateTemplate(r.Resource); err != nil {
		at.at("resource").add("%v", err)
	} else {
		for _, name := range blanksOf(r.Resource) {
			if !hasParameter(r.Path, name) {
				at.at("resource").add("%q: the route's path has no {%s}", r.Resource, name)
			}
		}
	}
	r.Realm.validate(at.at("realm"))
	if name := r.Realm.Path; name != "" && !hasParameter(r.Path, name) {
		at.at("realm.path").add("the route's path has no {%s}", name)
	}
	r.Principal.validate(at.at("principal"), r.Authorize)
	r.Authorize.validate(at.at("authorize"))
	validateRedact(at.at("redact"), r.Redact)
	r.Fingerprint.validate(at.at("fingerprint"))
	r.Reconcile.validate(at.at("reconcile"), r)
	r.Wait.validate(at.at("wait"))
	r.validatePolicies(at)
	r.validateBounds(at)
}

func (r Route) validatePolicies(at fieldFaults) {
	if _, known := profiles[r.Profile]; !known {
		at.at("profile").add("%q is none of ietf, stripe, iceberg", r.Profile)
	}
	if r.OnInProgress != InProgressWait && r.OnInProgress != InProgressReject {
		at.at("on_in_progress").add("%q is neither wait nor reject", r.OnInProgress)
	}
	switch r.OnServerError {
	case ServerErrorUnknown, ServerErrorRelease:
	case ServerErrorStore:
		if r.Profile == ProfileIceberg {
			at.at("on_server_error").add("profile iceberg never stores a 5xx: want unknown or release")
		}
	default:
		at.at("on_server_error").add("%q is none of unknown, store, release", r.OnServerError)
	}
}

func (r Route) validateBounds(at fieldFaults) {
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"retention", r.Retention},
		{"unknown_retention", r.UnknownRetention},
		{"work_timeout", r.WorkTimeout},
		{"settle", r.Settle},
		{"timeout", r.Timeout},
	} {
		if d.is < 0 || records.ValidateRetention(d.is) != nil {
			at.at(d.name).add("%s: want 0 to ten years", d.is)
		}
	}
	if r.Timeout > r.WorkTimeout {
		at.at("timeout").add("%s is more than work_timeout %s", r.Timeout, r.WorkTimeout)
	}
	if r.Settle >= r.WorkTimeout {
		at.at("settle").add("%s is not less than work_timeout %s, within which not_applied must count", r.Settle, r.WorkTimeout)
	}
	if r.MaxRequestBytes < 0 {
		at.at("max_request_bytes").add("negative")
	}
	if r.MaxResponseBytes < 0 || r.MaxResponseBytes > records.MaxBodyBytes {
		at.at("max_response_bytes").add("want at most %d", int64(records.MaxBodyBytes))
	}
	if r.Upstream != "" {
		validateUpstream(at.at("upstream"), r.Upstream)
	}
}

// warning says what one lost reply costs, where nobody can be asked what came
// of it.
func (r Route) warning() string {
	if r.Reconciler != nil || r.Reconcile.kind() != "" || r.OnServerError != ServerErrorUnknown {
		return ""
	}
	return fmt.Sprintf("route %q has no reconcile: one lost reply locks its key for %s", r.Operation, r.UnknownRetention)
}

// neverRecorded are the methods that change nothing.
func neverRecorded(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return true
	}
	return false
}

// Realm is where a key's scope is read from: at most one of its fields.
type Realm struct {
	Constant string
	Header   string // the value of this request header
	Host     bool   // the Host that was asked
	Path     string // the value of this path parameter
}

func (m Realm) validate(at fieldFaults) {
	n := 0
	for _, set := range []bool{m.Constant != "", m.Header != "", m.Host, m.Path != ""} {
		if set {
			n++
		}
	}
	if n > 1 {
		at.add("want one of constant, header, host, path")
	}
	if m.Header != "" && !httpguts.ValidHeaderFieldName(m.Header) {
		at.at("header").add("%q is no header name", m.Header)
	}
	if len(m.Constant) > maxRealmBytes {
		at.at("constant").add("over %d bytes", maxRealmBytes)
	}
}

const maxRealmBytes = 255

// of reads the realm of a request.
func (m Realm) of(r *http.Request) (string, *problem) {
	realm := m.Constant
	switch {
	case m.Header != "":
		values := r.Header.Values(m.Header)
		if len(values) != 1 || values[0] == "" {
			return "", &problem{code: codeRealmMissing, detail: fmt.Sprintf("Send exactly one %s header.", http.CanonicalHeaderKey(m.Header))}
		}
		realm = values[0]
	case m.Host:
		realm = strings.ToLower(r.Host)
	case m.Path != "":
		if realm = pathValue(r, m.Path); realm == "" {
			return "", &problem{code: codeRealmMissing, detail: "The path does not name a realm."}
		}
	}
	if len(realm) > maxRealmBytes {
		return "", &problem{code: codeRealmMissing, detail: fmt.Sprintf("The realm has more than %d bytes.", maxRealmBytes)}
	}
	return realm, nil
}

// pathValue is a path parameter, unescaped.
func pathValue(r *http.Request, name string) string {
	v := r.PathValue(name)
	if r.URL.RawPath == "" || !strings.Contains(v, "%") {
		return v
	}
	if u, err := url.PathUnescape(v); err == nil {
		return u
	}
	return v
}

// expand fills a template's {name}s.
func expand(template string, value func(name string) string) string {
	if !strings.Contains(template, "{") {
		return template
	}
	var b strings.Builder
	for rest := template; ; {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(after, "}")
		b.WriteString(value(name))
		rest = after
	}
}

// validateTemplate accepts text with {name}s.
func validateTemplate(template string) error {
	for rest := template; ; {
		before, after, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return fmt.Errorf("%q: } without {", template)
		}
		if !found {
			return nil
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.Contains(name, "{") {
			return fmt.Errorf("%q: want {name}", template)
		}
		rest = after
	}
}
