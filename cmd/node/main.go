// Command node, installed as probate, is a node of a Probate fleet and the
// tool to operate one.
//
// # Promises
//
// main hands the operating system to [run] and turns what comes back into an
// exit code; everything else is done by functions that tests call. The command
// wires packages together and decides nothing that they could decide.
//
// Every fault of a configuration is reported at once, each with its path and
// where it was written. A node that is told to stop says so to its balancers
// first, finishes what it runs, delivers every answer, and then ends. Routes
// are exchanged as a whole, without a request noticing.
//
// # Imports
//
// All packages of this module. kong reads the command line, yaml the
// configuration, client_golang and OpenTelemetry tell what happened.
//
// # Reading order
//
// main.go, cli.go, exit.go, output.go; settings.go, config.go, routes.go,
// check.go, address.go, which are the configuration; serve.go, node.go,
// listen.go, reload.go, stores.go, seal.go, which are a node; dataflows.go and
// dataplane.go, its data plane; metrics.go, survey.go,
// traces.go, which tell of it; operators.go, remote.go, intervene.go, show.go,
// which are for operators; then one file for each other subcommand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	heard := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	signal.Notify(signals, heard...)
	os.Exit(run(context.Background(), process{
		args: os.Args[1:], in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(),
		signals: signals, deaf: func() { signal.Reset(heard...) },
	}))
}
