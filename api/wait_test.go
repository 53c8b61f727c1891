package api_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
)

// TestWait is about how long a duplicate waits.
func TestWait(t *testing.T) {
	t.Parallel()
	throughBoth(t, func(t *testing.T, d door) {
		begun, finish := make(chan struct{}), make(chan struct{})
		l := &ledger{answer: func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-finish
		}}
		r := payments(t)
		r.Wait = api.Wait{Default: time.Minute, Max: 2 * time.Minute}
		// Nodes of its own, so that nobody else waits on them.
		file := filepath.Join(t.TempDir(), "probate.db")
		one, two := startNode("one", openStore(file)), startNode("two", openStore(file))
		t.Cleanup(one.close)
		t.Cleanup(two.close)
		urls := d.open(t, r, l, one, two)
		first := background(t, urls[0], request{key: "k"})
		<-begun
		for _, url := range urls {
			got := send(t, url, request{key: "k", header: http.Header{"Prefer": {"wait=0"}}})
			if p := got.wantProblem(t, 409, "operation_in_progress"); p["retryable"] != true || p["same_key"] != true || p["retry_after"] != 1.0 {
				t.Errorf("problem = %v", p)
			}
			got.want(t, 409, "Preference-Applied: wait=0", "Retry-After: 1", "Idempotency-Key: k")
		}
		waiting := background(t, urls[1], request{key: "k", header: http.Header{"Prefer": {"wait=9999"}}})
		await(t, "a duplicate waits", func() bool { return two.Waiting() > 0 })
		close(finish)
		(<-first).want(t, 200, "Idempotency-Status: executed")
		(<-waiting).want(t, 200, "Idempotency-Status: waited", "Idempotent-Replayed: true", "Preference-Applied: wait=120")
		l.want(t, 1)
	})
	t.Run("RejectAsksNobodyToWait", func(t *testing.T) {
		t.Parallel()
		begun, finish := make(chan struct{}), make(chan struct{})
		l := &ledger{answer: func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-finish
		}}
		r := payments(t)
		r.OnInProgress = api.InProgressReject
		url := middleware.node0(t, r, l)
		first := background(t, url, request{key: "k"})
		<-begun
		send(t, url, request{key: "k", header: http.Header{"Prefer": {"wait=60"}}}).want(t, 409, "Preference-Applied: ")
		close(finish)
		(<-first).want(t, 200)
	})
}

// await polls until a condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
