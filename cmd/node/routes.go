package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/probate-dev/probate/api"
)

// Route is one operation of the gateway, as a file says it.
type Route struct {
	Match            Match         `yaml:"match"`
	Upstream         string        `yaml:"upstream"`
	Operation        string        `yaml:"operation"`
	Resource         string        `yaml:"resource"`
	Realm            Realm         `yaml:"realm"`
	Principal        Principal     `yaml:"principal"`
	Authorize        *Authorize    `yaml:"authorize"`
	Required         bool          `yaml:"required"`
	Profile          string        `yaml:"profile"`
	Timeout          time.Duration `yaml:"timeout"`
	WorkTimeout      time.Duration `yaml:"work_timeout"`
	Retention        time.Duration `yaml:"retention"`
	UnknownRetention time.Duration `yaml:"unknown_retention"`
	Wait             RouteWait     `yaml:"wait"`
	OnInProgress     string        `yaml:"on_in_progress"`
	OnServerError    string        `yaml:"on_server_error"`
	MaxRequestBytes  int64         `yaml:"max_request_bytes"`
	MaxResponseBytes int64         `yaml:"max_response_bytes"`
	SecretResponse   bool          `yaml:"secret_response"`
	Redact           []string      `yaml:"redact"`
	Fingerprint      Fingerprint   `yaml:"fingerprint"`
	Reconcile        Reconcile     `yaml:"reconcile"`
	Settle           time.Duration `yaml:"settle"`
}

// Match says which requests a route is for.
type Match struct {
	Methods []string `yaml:"methods"`
	Path    string   `yaml:"path"`
}

// RouteWait overrides how long duplicates wait.
type RouteWait struct {
	Default time.Duration `yaml:"default"`
	Max     time.Duration `yaml:"max"`
}

// Realm is a word, which is a constant, or where to read it.
type Realm struct {
	Constant string `yaml:"constant"`
	Header   string `yaml:"header"`
	Host     bool   `yaml:"host"`
	Path     string `yaml:"path"`
}

var (
	_ scalarSetter = (*Realm)(nil)
	_ scalarSetter = (*Principal)(nil)
	_ scalarSetter = (*Reconcile)(nil)
)

func (r *Realm) setScalar(word string) error {
	r.Constant = word
	return nil
}

// Principal is the word none or authorize, or where to read it.
type Principal struct {
	Headers       []string `yaml:"headers"`
	JWT           *JWT     `yaml:"jwt"`
	TrustedHeader string   `yaml:"trusted_header"`

	none, authorize bool
}

func (p *Principal) setScalar(word string) error {
	switch word {
	case "none":
		p.none = true
	case "authorize":
		p.authorize = true
	default:
		return fmt.Errorf("%q is neither none nor authorize, nor a mapping of headers, jwt or trusted_header", word)
	}
	return nil
}

// JWT is how a bearer token names the principal.
type JWT struct {
	JWKS     string        `yaml:"jwks"`
	Claims   []string      `yaml:"claims"`
	Issuer   string        `yaml:"issuer"`
	Audience string        `yaml:"audience"`
	Leeway   time.Duration `yaml:"leeway"`
}

// Authorize is who is asked before anything is executed or replayed.
type Authorize struct {
	URL             string        `yaml:"url"`
	PrincipalHeader string        `yaml:"principal_header"`
	Timeout         time.Duration `yaml:"timeout"`
}

// Fingerprint changes what makes two requests the same.
type Fingerprint struct {
	Headers       []string `yaml:"headers"`
	CanonicalJSON bool     `yaml:"canonical_json"`
	IgnoreJSON    []string `yaml:"ignore_json"`
}

// Reconcile is the word never or reexecute, or whom to ask.
type Reconcile struct {
	URL             string        `yaml:"url"`
	Get             string        `yaml:"get"`
	CreatedStatus   int           `yaml:"created_status"`
	ResponseHeaders []HeaderValue `yaml:"response_headers"`
	Headers         []HeaderValue `yaml:"headers"`
	Timeout         time.Duration `yaml:"timeout"`
	SQL             *ReconcileSQL `yaml:"sql"`

	reexecute bool
}

func (r *Reconcile) setScalar(word string) error {
	switch word {
	case "never":
	case "reexecute":
		r.reexecute = true
	default:
		return errors.New("want never, reexecute, or a mapping of url, get or sql")
	}
	return nil
}

// HeaderValue is one header line to send.
type HeaderValue struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// api is the route as package api takes it, which validates it.
func (r Route) api() api.Route {
	route := api.Route{
		Methods: r.Match.Methods, Path: r.Match.Path, Operation: r.Operation, Resource: r.Resource,
		Realm:     api.Realm(r.Realm),
		Principal: r.Principal.api(), Required: r.Required, Profile: api.Profile(r.Profile),
		Retention: r.Retention, UnknownRetention: r.UnknownRetention, WorkTimeout: r.WorkTimeout,
		Wait: api.Wait(r.Wait), OnInProgress: api.InProgress(r.OnInProgress), OnServerError: api.ServerError(r.OnServerError),
		MaxRequestBytes: r.MaxRequestBytes, MaxResponseBytes: r.MaxResponseBytes, SecretResponse: r.SecretResponse, Redact: r.Redact,
		Fingerprint: api.FingerprintOptions(r.Fingerprint),
		Reconcile: api.Reconcile{
			URL: r.Reconcile.URL, Get: r.Reconcile.Get, CreatedStatus: r.Reconcile.CreatedStatus,
			Reexecute: r.Reconcile.reexecute, Timeout: r.Reconcile.Timeout,
			Headers: headersOf(r.Reconcile.Headers), ResponseHeaders: headersOf(r.Reconcile.ResponseHeaders),
		},
		Settle: r.settle(), Upstream: r.Upstream, Timeout: r.Timeout,
	}
	if r.Reconcile.SQL != nil {
		route.Reconciler = unopened
	}
	if r.Authorize != nil {
		a := api.Authorize(*r.Authorize)
		route.Authorize = &a
	}
	return route
}

func headersOf(lines []HeaderValue) map[string]string {
	h := make(map[string]string, len(lines))
	for _, l := range lines {
		h[l.Name] = l.Value
	}
	return h
}

func (p Principal) api() api.Principal {
	principal := api.Principal{None: p.none, Authorize: p.authorize, Headers: p.Headers, TrustedHeader: p.TrustedHeader}
	if p.JWT != nil {
		jwt := api.JWT(*p.JWT)
		principal.JWT = &jwt
	}
	return principal
}

// kind says where the principal comes from.
func (p Principal) kind() string {
	switch {
	case p.none:
		return "none"
	case p.authorize:
		return "authorize"
	case p.JWT != nil:
		return "jwt"
	case p.TrustedHeader != "":
		return "trusted_header"
	}
	return "headers"
}

// price is what that choice costs.
func (p Principal) price() string {
	switch p.kind() {
	case "none":
		return "all clients share one set of keys: who knows a key can read its answer"
	case "authorize":
		return "one request to the authorizer for every keyed request"
	case "jwt":
		return "a token must be valid when a request is repeated"
	case "trusted_header":
		return "who reaches this listener past the proxy can be anybody"
	}
	return "a credential that was refreshed between two tries is another principal, and the request runs again"
}
