// Command upstream is the service behind the nodes in compose.yaml: it takes
// payments, and shows what a service needs so that an interrupted one can be
// settled.
//
//	POST /orders/{id}/payments  makes a payment; knows nothing of duplicates
//	POST /visits                counts a visit
//	POST /reconcile             what became of a payment?
//	GET  /ledger                everything that was done
//
// # Promises
//
// It refuses epochs smaller than one it was told of, and says pending as long as
// it works on a payment.
//
// # Not promised
//
// It remembers nothing once it has ended.
//
// # Imports
//
// The standard library.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("LISTEN")); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends, and finishes what it has begun.
func run(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newShop(50 * time.Millisecond), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintln(os.Stderr, "upstream: listening on", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
