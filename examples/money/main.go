// Command money is a service that moves money between accounts, each transfer
// once, whatever happens to its processes.
//
// It shows what Probate gives to a service whose effect is in its own
// PostgreSQL: the transfer and the record of its Idempotency-Key are one
// transaction (transfer.go), and a fleet of such processes takes over from one
// that dies. Nothing here waits for a time-out.
//
//	DATABASE_URL=postgres://… LISTEN=:8080 INTERNAL=10.0.0.7:8081 money
//
//	POST /transfers   {"from": 1, "to": 2, "amount": 10}, with an Idempotency-Key
//
// It prepares its own tables; Probate's own are migrated by probate migrate.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/takeover"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, log); err != nil {
		log.Error("money", "error", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

// run serves until ctx ends, and then until what was begun is done.
func run(ctx context.Context, log *slog.Logger) (err error) {
	inside, err := listen(ctx, "INTERNAL", "127.0.0.1:8081")
	if err != nil {
		return err
	}
	outside, err := listen(ctx, "LISTEN", "127.0.0.1:8080")
	if err != nil {
		return errors.Join(err, inside.Close())
	}
	log.Info("listening", "public", outside.Addr().String(), "internal", inside.Addr().String())

	store, err := postgres.Open(ctx, postgres.Config{DSN: os.Getenv("DATABASE_URL"), Cluster: "money", Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	db, err := sqlx.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := prepare(ctx, db); err != nil {
		return err
	}

	var node *takeover.Node
	asker := probe.NewClient(probe.ClientConfig{
		Cluster: "money",
		Lookup:  func(id records.ExecutorID) (records.Executor, bool) { return node.Lookup(id) },
	})
	defer func() { err = errors.Join(err, asker.Close()) }()
	var a *api.API
	node, err = takeover.New(takeover.Config{
		Slot: inside.Addr().String(), URL: "http://" + inside.Addr().String(), LeaseTTL: leaseTTL(), Logger: log,
		Recover: func(r records.Record) (takeover.Terms, takeover.Work, bool) { return a.Recover(r) },
	}, store, asker)
	if err != nil {
		return err
	}
	if a, err = api.New(api.Config{Coordinator: node, Logger: log}); err != nil { //nolint:contextcheck // each request brings its own
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	mux, err := routes(a, &bank{db: db, join: &postgres.Join{Store: store, DB: db}})
	if err != nil {
		return err
	}
	answers, err := probe.NewHandler(probe.HandlerConfig{
		Cluster: "money", Self: node, Runs: node, Node: node, Peers: node, Prober: asker,
	})
	if err != nil {
		return err
	}
	internal, public := probe.Server(answers, nil), &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go serve(log, internal, inside)
	go serve(log, public, outside)
	defer context.AfterFunc(ctx, node.Drain)()
	last := context.WithoutCancel(ctx)
	return errors.Join(node.Run(last), public.Shutdown(last), internal.Close())
}

// routes puts the transfers under the node. A transfer is repeatable where its
// record is not finalized, since both are one transaction.
func routes(a *api.API, b *bank) (http.Handler, error) {
	once, err := a.Middleware(api.Route{
		Operation:  "transfer",
		Required:   true,
		Principal:  api.Principal{None: true}, // an example has no users
		Reconciler: takeover.Reexecute,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /transfers", once(http.HandlerFunc(b.transfer)))
	return mux, nil
}

func listen(ctx context.Context, variable, address string) (net.Listener, error) {
	if v := os.Getenv(variable); v != "" {
		address = v
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return l, nil
}

// leaseTTL is the LEASE, or zero for the default.
func leaseTTL() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("LEASE"))
	return d
}

func serve(log *slog.Logger, s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		log.Error("serve", "address", l.Addr().String(), "error", err)
	}
}
