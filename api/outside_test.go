package api_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// asked is a coordinator that only notes what it was asked.
type asked struct{ request takeover.Request }

func (a *asked) Do(_ context.Context, r takeover.Request, _ takeover.Work) (takeover.Answer, error) {
	a.request = r
	return takeover.Answer{}, takeover.ErrNotServing
}

// TestReconciler holds what is true of every way to reconcile. Its errors are
// logged, and a template can put a key into a URL.
func TestReconciler(t *testing.T) {
	t.Parallel()
	t.Run("NeverShowsAKeyInItsErrors", func(t *testing.T) {
		t.Parallel()
		const secret = "key-of-a-client"
		var coordinator asked
		a, err := api.New(api.Config{Coordinator: &coordinator, Logger: testLog(t), Routes: []api.Route{{
			Methods: []string{"POST"}, Path: "/pay", Operation: "pay", Principal: api.Principal{None: true},
			Upstream: "http://127.0.0.1:1", Reconcile: api.Reconcile{Get: "http://127.0.0.1:1/payments/{key}"},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Close() }()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/pay", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", secret)
		a.ServeHTTP(httptest.NewRecorder(), r)

		_, err = coordinator.request.Terms.Reconciler.Reconcile(t.Context(), records.Record{Key: secret}, coordinator.request)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error = %v, want one without the key", err)
		}
	})
}
