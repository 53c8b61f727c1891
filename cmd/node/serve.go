package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records/postgres"
)

type serveCmd struct {
	Check    bool         `help:"Check the configuration, report every fault at once, and end."`
	Migrate  bool         `help:"Bring a PostgreSQL store's schema up to date first. SQLite always does that by itself."`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (serveCmd) Help() string {
	return `Examples:

  probate serve                                       one node on a SQLite file in this folder
  probate serve --config payments.yaml --check        look for faults, start nothing
  DATABASE_URL=postgres://probate@db/probate \
    probate serve --internal.listen :8081 --internal.advertise http://10.0.0.7:8081

SIGTERM: readiness fails, running requests are finished and answered, then it ends with 0.
A second SIGTERM: what runs is cancelled. SIGHUP: the routes are read again, the operators, and the keys that seal.`
}

// Run implements the subcommand.
func (c *serveCmd) Run(ctx context.Context, e *env) error {
	config, err := readConfig(e.settings(c.Settings))
	if err != nil {
		return err
	}
	if c.Check {
		return c.report(e, config)
	}
	log, err := newLogger(e, config.Log)
	if err != nil {
		return err
	}
	t, err := newTracer(ctx, e.environ)
	if err != nil {
		return err
	}
	defer t.close(ctx, log)
	starting, started := e.untilSignal(ctx, syscall.SIGHUP)
	n, err := c.open(starting, config, log, t)
	if interrupted := started(); err != nil {
		return err
	} else if interrupted {
		return errors.Join(errInterrupted, n.close())
	}
	n.announce(ctx)
	err = n.obey(ctx, e.signals, e.deaf, func() settings { return e.settings(c.Settings) })
	return errors.Join(err, n.close())
}

// open does what can take long before a node can be told to leave.
func (c *serveCmd) open(ctx context.Context, config Config, log *slog.Logger, t *tracer) (*node, error) {
	if _, embedded := sqlitePath(config.Store); c.Migrate && !embedded {
		log.InfoContext(ctx, "migrating store", "store", config.storeName())
		if err := postgres.Migrate(ctx, config.Store); err != nil {
			return nil, err
		}
	}
	return openNode(ctx, config, log, t)
}

// report is what serve --check says of a configuration without faults.
func (c *serveCmd) report(e *env, config Config) error {
	warnings := config.gateway().Warnings()
	for _, w := range warnings {
		e.say("%s %s\n", e.paint(yellow, "warning:"), w)
	}
	result := map[string]any{"valid": true, "routes": len(config.Routes), "warnings": append([]string{}, warnings...)}
	return e.show(result, func(w *text) {
		w.printf("configuration is valid: %d routes, %d warnings, store %s\n", len(config.Routes), len(warnings), config.storeName())
	})
}

// newLogger writes to standard error.
func newLogger(e *env, l Log) (*slog.Logger, error) {
	level, err := l.level()
	if err != nil {
		return nil, configError{err}
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(e.err, o)), nil
	}
	return slog.New(slog.NewTextHandler(e.err, o)), nil
}

// errStoppedTwice is why a node was stopped before its work was done.
var errStoppedTwice = errors.New("stopped by a second signal before everything was done")

// oneOrder is how close together signals are one order: supervisors often send
// theirs to a process and to its group, which reaches it twice.
const oneOrder = 100 * time.Millisecond

// obey runs the node and does what signals say, until it has ended.
func (n *node) obey(ctx context.Context, signals <-chan os.Signal, deaf func(), again func() settings) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	var heeding sync.WaitGroup
	heeding.Go(func() {
		var told time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case s == syscall.SIGHUP:
					n.reload(ctx, again())
				case told.IsZero():
					told = time.Now()
					heeding.Go(func() { n.leave(ctx) })
				case time.Since(told) < oneOrder:
				default:
					n.log.WarnContext(ctx, "stopping at once")
					stop(errStoppedTwice)
					deaf()
				}
			case <-ended:
				return
			}
		}
	})
	err := n.run(ctx)
	if errors.Is(context.Cause(ctx), errStoppedTwice) {
		err = errors.Join(errStoppedTwice, err)
	}
	close(ended)
	stop(nil)
	heeding.Wait()
	return err
}

// announce says what this node is about to do.
func (n *node) announce(ctx context.Context) {
	c := n.config
	n.log.InfoContext(ctx, "starting", "version", version(), "store", c.storeName(), "cluster", c.Cluster, "slot", c.Slot,
		"advertise", c.Internal.Advertise, "policy", c.Takeover.Policy, "lease_ttl", c.Takeover.LeaseTTL.String(), "routes", len(c.Routes))
	n.log.InfoContext(ctx, "sealing bodies and stored requests", "with", c.sealing())
	n.announceRoutes(ctx, c)
}

// announceRoutes says what is recorded, under whose name, and what that costs.
func (n *node) announceRoutes(ctx context.Context, c Config) {
	for _, r := range c.Routes {
		n.log.InfoContext(ctx, "route", "operation", r.Operation, "methods", strings.Join(r.Match.Methods, ","), "path", r.Match.Path,
			"principal", r.Principal.kind(), "price", r.Principal.price())
	}
	for _, w := range c.gateway().Warnings() {
		n.log.WarnContext(ctx, "route can lock a key", "warning", w)
	}
}
