//go:build unix

package speed_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/takeover"
)

// startNode runs a node over PostgreSQL within this process, as a Go service
// would, with default settings, until the test ends.
func startNode(t testing.TB, dsn string) *takeover.Node {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: "speed"})
	if err != nil {
		t.Fatal(err)
	}
	var node *takeover.Node
	var probes http.Handler
	address := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { probes.ServeHTTP(w, r) }))
	client := probe.NewClient(probe.ClientConfig{
		Cluster: "speed", Dial: 500 * time.Millisecond, Header: time.Second,
		Lookup: func(id records.ExecutorID) (records.Executor, bool) { return node.Lookup(id) },
	})
	if node, err = takeover.New(takeover.Config{Slot: "speed", URL: "http://" + address}, store, client); err != nil {
		t.Fatal(err)
	}
	probes, err = probe.NewHandler(probe.HandlerConfig{
		Cluster: "speed", Version: "speed", Self: node, Runs: node, Node: node, Peers: node, Prober: client,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		_ = client.Close()
		_ = store.Close()
	})
	deadline := time.Now().Add(time.Minute)
	for !node.Status().Serving() {
		if time.Now().After(deadline) {
			t.Fatal("the node does not come to serve")
		}
		<-time.After(5 * time.Millisecond)
	}
	return node
}

// openMiddleware serves the payments under a node and returns the host:port.
func openMiddleware(t testing.TB, node *takeover.Node) string {
	t.Helper()
	a, err := api.New(api.Config{Coordinator: node, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	wrap, err := a.Middleware(api.Route{
		Methods: []string{http.MethodPost}, Path: "/orders/{id}/payments", Operation: "create-payment", Resource: "{id}",
		Principal: api.Principal{Headers: []string{"Authorization"}}, Realm: api.Realm{Constant: "shop"},
	})
	if err != nil {
		t.Fatal(err)
	}
	router := chi.NewRouter()
	router.With(wrap).Post("/orders/{id}/payments", pay)
	return listen(t, router)
}
