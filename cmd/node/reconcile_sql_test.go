package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// TestReconcileSQL: a query on the service's own database tells what became of
// a request whose reply was lost.
func TestReconcileSQL(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Shared(t).Empty(t)
	db := postgrestest.Open(t, dsn)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE orders (operation text, key text, no int GENERATED ALWAYS AS IDENTITY)`); err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if !strings.HasPrefix(key, "stillborn") || broken.Load() {
			if _, err := db.ExecContext(r.Context(), `INSERT INTO orders VALUES ($1, $2)`, r.Header.Get("Idempotency-Operation"), key); err != nil {
				t.Error(err)
			}
		}
		if !broken.Load() {
			panic(http.ErrAbortHandler) // the reply is lost
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "probate.yaml")
	configured := func(query string) {
		text := fmt.Sprintf(`
store: %s
listen: 127.0.0.1:0
internal: {listen: 127.0.0.1:0, allow: [127.0.0.0/8]}
%sroutes:
  - match: {methods: [POST], path: /orders}
    upstream: %s
    operation: order
    principal: none
    settle: 10ms
    reconcile:
      sql:
        dsn: %q
        query: >
          %s
`, sqliteStore(t), fmt.Sprintf(quick, ""), service.URL, dsn, query)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configured(`SELECT 'applied' AS finding, 201 AS status, json_build_object('Content-Type', 'text/plain') AS headers, 'order ' || no AS body
          FROM orders WHERE operation = :operation_ref AND key = :key`)
	n, client := startEmbedded(t, "--config", file), browser(t)
	ready(t, client, n.public)

	got := order(t.Context(), client, n.public, "lost", "x")
	if got.err != nil || got.status != http.StatusCreated || got.how != "reconciled" || got.body != "order 1" {
		t.Errorf("applied: %+v", got)
	}
	if got := order(t.Context(), client, n.public, "lost", "x"); got.how != "replayed" || got.body != "order 1" {
		t.Errorf("again: %+v", got)
	}
	if got := order(t.Context(), client, n.public, "stillborn", "x"); got.status != http.StatusBadGateway {
		t.Errorf("not applied: %+v", got)
	}
	broken.Store(true)
	if got := order(t.Context(), client, n.public, "stillborn", "x"); got.status != http.StatusCreated || got.how != "executed" {
		t.Errorf("the key is not free: %+v", got)
	}

	reload := func(message string) map[string]any {
		before := len(n.log.all(message))
		n.signals <- syscall.SIGHUP
		await(t, message, func() bool { return len(n.log.all(message)) > before })
		return n.log.all(message)[before]
	}
	configured("SELECT 1 AS finding FROM nowhere")
	if line := reload("configuration not reloaded"); !strings.Contains(fmt.Sprint(line["fault"]), "routes[0].reconcile.sql") {
		t.Errorf("reload: %v", line)
	}
	broken.Store(false)
	if got := order(t.Context(), client, n.public, "lost-again", "x"); got.how != "reconciled" {
		t.Errorf("the old route is gone: %+v", got)
	}
	configured("SELECT 'applied' AS finding, 200 AS status")
	reload("routes reloaded")
	if got := order(t.Context(), client, n.public, "lost-too", "x"); got.status != http.StatusOK || got.how != "reconciled" {
		t.Errorf("the new query is not asked: %+v", got)
	}
}

// TestReconcileSQL_Settles: unless a route says otherwise, nothing in the
// database is believed only once the upstream has had its time.
func TestReconcileSQL_Settles(t *testing.T) {
	t.Parallel()
	asks := Reconcile{SQL: &ReconcileSQL{}}
	for _, c := range []struct {
		route Route
		want  time.Duration
	}{
		{Route{Reconcile: asks}, 30 * time.Second},
		{Route{Reconcile: asks, Timeout: 5 * time.Second}, 5 * time.Second},
		{Route{Reconcile: asks, WorkTimeout: 4 * time.Second}, 4 * time.Second},
		{Route{Reconcile: asks, Settle: time.Second, Timeout: 5 * time.Second}, time.Second},
		{Route{Timeout: 5 * time.Second}, 0},
	} {
		if got := c.route.settle(); got != c.want {
			t.Errorf("%+v settles for %s, want %s", c.route, got, c.want)
		}
	}
}
