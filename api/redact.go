package api

import (
	"context"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// redacted are the names of both lists, as headers are stored.
func redacted(everywhere, here []string) []string {
	names := slices.Concat(everywhere, here)
	for i, name := range names {
		names[i] = http.CanonicalHeaderKey(name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func validateRedact(at fieldFaults, names []string) {
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) {
			at.add("%q is no header name", name)
		}
	}
}

// kept is what may be stored of a response: not the headers that the route
// redacts, and of one that is secret no more than its status and Location.
func (r Route) kept(resp records.Response) records.Response {
	if !r.discreet() {
		return resp
	}
	headers := make([]records.Header, 0, len(resp.Headers))
	for _, h := range resp.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		if slices.Contains(r.Redact, name) || r.SecretResponse && name != "Location" {
			continue
		}
		headers = append(headers, h)
	}
	resp.Headers = headers
	if r.SecretResponse {
		resp.Body = nil
	}
	return resp
}

// discreet reports whether there is anything to leave out.
func (r Route) discreet() bool { return r.SecretResponse || len(r.Redact) > 0 }

// discreetly is a reconciler for a route that leaves something out: what it
// finds is stored, too.
func (r Route) discreetly(inner takeover.Reconciler) takeover.Reconciler {
	if inner == nil || !r.discreet() || r.Reconcile.Reexecute {
		return inner
	}
	return takeover.ReconcilerFunc(func(ctx context.Context, rec records.Record, req takeover.Request) (takeover.Finding, error) {
		f, err := inner.Reconcile(ctx, rec, req)
		if f.Kind == takeover.Applied {
			f.Response = r.kept(f.Response)
		}
		return f, err
	})
}
