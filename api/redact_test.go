package api

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	found := records.Response{Status: 201, Body: []byte("secret"), Headers: []records.Header{
		{Name: "Location", Value: "/7"}, {Name: "X-Api-Key", Value: "1"}, {Name: "x-api-key", Value: "2"}, {Name: "X-Else", Value: "3"},
	}}
	for name, c := range map[string]struct {
		route Route
		want  records.Response
	}{
		"LeavesTheRestAlone": {Route{}, found},
		"TakesOutHeaders": {
			Route{Redact: redacted([]string{"x-API-key"}, []string{"X-Api-Key", "X-None"})},
			records.Response{Status: 201, Body: found.Body, Headers: []records.Header{found.Headers[0], found.Headers[3]}},
		},
		"TakesOutSecrets":         {Route{SecretResponse: true}, records.Response{Status: 201, Headers: found.Headers[:1]}},
		"TakesOutLocationIfAsked": {Route{SecretResponse: true, Redact: []string{"Location"}}, records.Response{Status: 201, Headers: []records.Header{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(found.Headers)
			if diff := cmp.Diff(c.want, c.route.kept(found)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			r := c.route.discreetly(takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return takeover.FoundApplied(found), nil
			}))
			f, err := r.Reconcile(t.Context(), records.Record{}, takeover.Request{})
			if diff := cmp.Diff(c.want, f.Response); err != nil || f.Kind != takeover.Applied || diff != "" {
				t.Errorf("found %s, %v (-want +got):\n%s", f.Kind, err, diff)
			}
			if !slices.Equal(before, found.Headers) {
				t.Error("what was found was changed")
			}
		})
	}
	t.Run("PassesOnWhatIsNoAnswer", func(t *testing.T) {
		t.Parallel()
		failed := errors.New("failed")
		r := Route{SecretResponse: true}.discreetly(takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundPending(7), failed
		}))
		if f, err := r.Reconcile(t.Context(), records.Record{}, takeover.Request{}); f.Kind != takeover.Pending || f.After != 7 || !errors.Is(err, failed) {
			t.Errorf("%v, %v", f, err)
		}
		if (Route{SecretResponse: true}).discreetly(nil) != nil {
			t.Error("a reconciler was made of none")
		}
	})
	t.Run("RefusesWhatIsNoHeader", func(t *testing.T) {
		t.Parallel()
		var f faults
		validateRedact(f.at("redact"), []string{"X-Fine", "not fine", ""})
		if len(f.all) != 2 {
			t.Errorf("faults = %v", f.join())
		}
	})
}
