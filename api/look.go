package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// validateGet accepts a template that is a URL once it is filled.
func validateGet(at fieldFaults, template string) {
	u, err := url.Parse(expand(template, func(string) string { return "x" }))
	other, _ := url.Parse(expand(template, func(string) string { return "y" }))
	switch {
	case err != nil:
		at.add("not a URL: %v", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.User != nil, strings.Contains(template, "#"):
		at.add("%q: want http:// or https://, a host, a path and perhaps a query", template)
	case other == nil, other.Host != u.Host, other.Scheme != u.Scheme:
		at.add("%q: the host is not for a client to say", template)
	case climbs(u):
		at.add("%q: want a path without . and ..", template)
	}
}

// look reconciles by looking whether what the operation makes is there.
type look struct {
	config  Reconcile
	limit   int64
	outside *outside
	asked   *asked // what the client asked for; nil: not at hand
}

// with is the look for one request, if it takes what only that can tell.
func (l *look) with(x *exchange) takeover.Reconciler {
	if !l.config.needsRequest() {
		return l
	}
	one := *l
	one.asked = askedOf(x, l.config)
	return &one
}

// Reconcile implements [takeover.Reconciler]. A template that cannot be filled
// would ask about something else, so then nobody can tell.
func (l *look) Reconcile(ctx context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
	values := &blanks{record: r, asked: l.asked}
	target := expand(l.config.Get, values.escaped)
	mapped := make(http.Header, len(l.config.ResponseHeaders))
	for name, template := range l.config.ResponseHeaders {
		mapped.Set(name, expand(template, values.escaped))
	}
	if values.missing != "" {
		return takeover.FoundUndecidable("look: " + values.missing), nil
	}
	if u, err := url.Parse(target); err != nil || climbs(u) {
		return takeover.FoundUndecidable("look: the request's values lead elsewhere"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return takeover.Finding{}, fmt.Errorf("look: %w", err)
	}
	setHeaders(req, l.config.Headers)
	got, err := l.outside.do(req, l.limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		return takeover.Finding{}, fmt.Errorf("look: %w", err) // asked again
	}
	switch s := got.status; {
	case s >= 200 && s < 300 && s != http.StatusPartialContent:
		if err != nil { // it is there all the same; only its body cannot be kept
			got.body = nil
		}
		return takeover.FoundApplied(l.original(got, mapped)), nil
	case s == http.StatusNotFound, s == http.StatusGone:
		return takeover.FoundNotApplied(), nil
	case s >= 500:
		f := takeover.FoundPending(retryAfter(got.header))
		f.Reason = fmt.Sprintf("look: status %d", s)
		return f, nil
	default:
		return takeover.FoundUndecidable(fmt.Sprintf("look: status %d", s)), nil
	}
}

// original makes of a look at a thing the response of what made it: another
// status, and the headers that a look does not show.
func (l *look) original(got reply, mapped http.Header) records.Response {
	h := got.header.Clone()
	maps.Copy(h, mapped)
	r := records.Response{Status: l.config.CreatedStatus, Headers: storable(h, nil), Body: got.body}
	if !bodyAllowed(r.Status) {
		r.Body = []byte{}
		r.Headers = slices.DeleteFunc(r.Headers, func(h records.Header) bool {
			return strings.HasPrefix(h.Name, "Content-") && h.Name != "Content-Location"
		})
	}
	return r
}

// climbs reports whether a path leads up or nowhere.
func climbs(u *url.URL) bool {
	return slices.ContainsFunc(strings.Split(u.EscapedPath(), "/"), isDots)
}

func isDots(s string) bool { return s == "." || s == ".." }
