package api

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Principal says whose key a key is. Two principals with the same key never
// see each other's responses, so a route must choose exactly one of its
// fields.
type Principal struct {
	// None: all callers are one principal. Whoever guesses or learns a key can
	// read its response.
	None bool
	// Headers: the SHA-256 of these headers' whole values, such as
	// Authorization. A token refreshed between a try and its retry is another
	// principal, so the retry executes again.
	Headers []string
	// JWT: claims of a verified bearer token.
	JWT *JWT
	// TrustedHeader: the value of a header that a proxy in front sets, and
	// takes away from whatever clients send. Without that proxy every client
	// can be whoever it wants.
	TrustedHeader string
	// Authorize: what the answer of the route's authorize request says, in
	// its PrincipalHeader.
	Authorize bool
	// Func: what Go code says. An error is answered 401.
	Func func(r *http.Request) (string, error)
}

// JWT is how a bearer token is verified, and what of it names the principal.
type JWT struct {
	JWKS     string        // URL or file of the issuer's keys (RFC 7517)
	Claims   []string      // default iss, sub; all must be there
	Issuer   string        // required value of iss; "": any
	Audience string        // required among aud; "": any
	Leeway   time.Duration // by which clocks may differ; default 30s
}

// principalPrice is what the start-up message says to a route that has not
// chosen.
const principalPrice = `missing: choose whose key a key is.
  headers: [Authorization]  hashes the whole value; a token refreshed between a try and its retry executes again
  jwt: {jwks: …}            verifies the token and takes its claims; needs the issuer's keys
  trusted_header: X-User    believes a header; a proxy in front must set it and remove what clients send
  authorize                 takes the name from the authorize request; one more request each time
  none                      all callers are one; whoever knows a key reads its response`

func (p Principal) validate(at fieldFaults, a *Authorize) {
	n := 0
	for _, set := range []bool{p.None, len(p.Headers) > 0, p.JWT != nil, p.TrustedHeader != "", p.Authorize, p.Func != nil} {
		if set {
			n++
		}
	}
	switch {
	case n == 0:
		at.add(principalPrice)
	case n > 1:
		at.add("want exactly one of headers, jwt, trusted_header, authorize, none")
	}
	for _, h := range append(p.Headers, p.TrustedHeader) {
		if h != "" && !httpguts.ValidHeaderFieldName(h) {
			at.add("%q is no header name", h)
		}
	}
	if p.JWT != nil && p.JWT.JWKS == "" {
		at.at("jwt.jwks").add("missing: a URL or a file with the issuer's keys")
	}
	if p.Authorize && (a == nil || a.PrincipalHeader == "") {
		at.add("authorize needs the route's authorize with a principal_header")
	}
}

// principalReader finds a request's principal. named is what the authorize
// request said.
type principalReader func(r *http.Request, named string) (string, *problem)

func (a *API) newPrincipal(p Principal) principalReader {
	switch {
	case len(p.Headers) > 0:
		return headersPrincipal(p.Headers)
	case p.TrustedHeader != "":
		return trustedPrincipal(http.CanonicalHeaderKey(p.TrustedHeader))
	case p.JWT != nil:
		return newVerifier(*p.JWT, a.outside).principal
	case p.Authorize:
		return func(_ *http.Request, named string) (string, *problem) {
			if named == "" {
				return "", &problem{code: codePrincipalMissing, detail: "The authorization does not say who asks."}
			}
			return frame("authorize", named), nil
		}
	case p.Func != nil:
		return func(r *http.Request, _ string) (string, *problem) {
			who, err := p.Func(r)
			if err != nil {
				return "", &problem{code: codeTokenInvalid}
			}
			return frame("func", who), nil
		}
	}
	return func(*http.Request, string) (string, *problem) { return frame("none"), nil }
}

// headersPrincipal is the hash of some headers. Somebody without any of them
// is nobody, and two nobodies are not the same.
func headersPrincipal(names []string) principalReader {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = http.CanonicalHeaderKey(name)
	}
	return func(r *http.Request, _ string) (string, *problem) {
		framed, found := make([]byte, 0, 256), false
		for _, name := range canonical {
			values := r.Header[name]
			found = found || len(values) > 0
			framed = appendFramed(framed, name)
			framed = binary.BigEndian.AppendUint64(framed, uint64(len(values))) // or a value could pass for the next name
			framed = appendFramed(framed, values...)
		}
		if !found {
			return "", &problem{code: codePrincipalMissing, detail: fmt.Sprintf("A request with a key needs %s here.", strings.Join(canonical, " or "))}
		}
		sum := sha256.Sum256(framed)
		return frame("headers", string(sum[:])), nil
	}
}

func trustedPrincipal(name string) principalReader {
	return func(r *http.Request, _ string) (string, *problem) {
		values := r.Header[name]
		if len(values) != 1 || values[0] == "" {
			return "", &problem{code: codePrincipalMissing, detail: fmt.Sprintf("A request with a key needs exactly one %s here.", name)}
		}
		return frame("trusted", values[0]), nil
	}
}

// frame joins parts, each preceded by its length, so that no two lists look
// the same.
func frame(parts ...string) string {
	return string(appendFramed(make([]byte, 0, 128), parts...))
}

func appendFramed(b []byte, parts ...string) []byte {
	for _, p := range parts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(p))), p...)
	}
	return b
}
