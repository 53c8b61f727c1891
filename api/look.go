package api

import (
	"context"
	"errors"
	"fmt"
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
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.User != nil, u.Fragment != "":
		at.add("%q: want http:// or https://, a host, a path and perhaps a query", template)
	case other == nil, other.Host != u.Host, other.Scheme != u.Scheme:
		at.add("%q: the host is not for a client to say", template)
	}
}

// look reconciles by looking whether what the operation makes is there.
type look struct {
	config  Reconcile
	limit   int64
	outside *outside
}

// Reconcile implements [takeover.Reconciler].
func (l *look) Reconcile(ctx context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
	if climbs(r) {
		return takeover.Finding{Kind: takeover.Undecidable}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, expand(l.config.Get, escaped(r)), nil)
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
		applied := records.Response{Status: l.config.CreatedStatus, Headers: storable(got.header, nil), Body: got.body}
		if err != nil { // it is there all the same; only its body cannot be kept
			applied.Body = nil
		}
		return takeover.FoundApplied(applied), nil
	case s == http.StatusNotFound, s == http.StatusGone:
		return takeover.FoundNotApplied(), nil
	case s >= 500:
		return takeover.FoundPending(retryAfter(got.header)), nil
	}
	return takeover.Finding{Kind: takeover.Undecidable}, nil
}

// escaped are a record's names as they may stand in a URL's path or query.
func escaped(r records.Record) func(name string) string {
	names := map[string]string{"resource": r.Resource, "realm": r.Realm, "key": r.Key, "operation_ref": r.ID.String()}
	return func(name string) string {
		return strings.ReplaceAll(url.QueryEscape(names[name]), "+", "%20")
	}
}

// climbs reports whether a name would lead a template elsewhere.
func climbs(r records.Record) bool {
	return slices.ContainsFunc([]string{r.Resource, r.Realm, r.Key}, func(s string) bool { return s == "." || s == ".." })
}
