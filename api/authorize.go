package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Authorize asks a service whether a keyed request may go on, before anything
// is executed or replayed, as nginx' auth_request does: so a credential that
// was revoked gets its 401 or 403 and no stored byte.
type Authorize struct {
	// URL gets a GET with the request's headers, X-Original-Method and
	// X-Original-URI, without its body. 2xx: go on. 401 and 403 are the
	// client's answer. Everything else is answered 503.
	URL string
	// PrincipalHeader of its answer names the principal, for
	// Principal.Authorize.
	PrincipalHeader string
	// Timeout of the question. Default 2s.
	Timeout time.Duration
}

func (a *Authorize) validate(at fieldFaults) {
	if a == nil {
		return
	}
	validateUpstream(at.at("url"), a.URL)
	if a.PrincipalHeader != "" && !httpguts.ValidHeaderFieldName(a.PrincipalHeader) {
		at.at("principal_header").add("%q is no header name", a.PrincipalHeader)
	}
	if a.Timeout < 0 {
		at.at("timeout").add("negative")
	}
}

const authorizeBytes = 64 << 10

type authorizer struct {
	Authorize
	outside *outside
}

func newAuthorizer(a Authorize, o *outside) *authorizer {
	setDefault(&a.Timeout, 2*time.Second)
	return &authorizer{a, o}
}

// notForwarded are headers of the client's connection and of its body.
var notForwarded = []string{
	"Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Trailer", "Proxy-Connection", "Proxy-Authorization",
	"Content-Length", "Content-Encoding", "Content-Type", "Expect",
}

// ask returns whom the service names, or why the request may not go on.
func (a *authorizer) ask(r *http.Request) (named string, p *problem) {
	ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
	defer cancel()
	down := &problem{code: codeAuthorizationDown}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return "", down
	}
	req.Header = r.Header.Clone()
	for _, name := range slices.Concat(notForwarded, connectionNamed(r.Header)) {
		req.Header.Del(name)
	}
	req.Header.Set("X-Original-Method", r.Method)
	req.Header.Set("X-Original-URI", r.URL.RequestURI())
	got, err := a.outside.do(req, authorizeBytes)
	switch {
	case err != nil:
		a.outside.warn(ctx, "authorization cannot be asked", "error", err)
		return "", down
	case got.status >= 200 && got.status < 300:
		if a.PrincipalHeader != "" {
			named = got.header.Get(a.PrincipalHeader)
		}
		return named, nil
	case got.status == http.StatusUnauthorized || got.status == http.StatusForbidden:
		return "", &problem{code: codeTokenInvalid, refusal: &got}
	}
	a.outside.warn(ctx, "authorization answers strangely", "status", got.status)
	return "", down
}

// passOn answers with the authorizing service's own refusal.
func (y *reply) passOn(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range y.header {
		if !slices.Contains(notForwarded, name) || name == "Content-Type" {
			h[name] = values
		}
	}
	h["Cache-Control"] = []string{"no-store"}
	w.WriteHeader(y.status)
	_, _ = w.Write(y.body) // a client that is gone is told nothing
}
