package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/takeover"
)

// node is one serving process, put together.
type node struct {
	started Config // as it was read
	config  Config // with what was derived from it
	log     *slog.Logger
	metrics *metrics
	audit   *audit
	tracer  *tracer
	tls     *tls.Config

	publicTLS *tls.Config // nil: none

	public, internal net.Listener

	sealer   *sealed.Sealer // its keys are exchanged by a reload
	store    records.Store
	asker    *probe.Client
	takeover *takeover.Node
	probes   *probe.Handler
	queries  queries                 // that reconcile
	gateway  atomic.Pointer[api.API] // exchanged by a reload, as the operators are

	operators atomic.Pointer[api.Operators] // nil: no operator API

	flows records.Flows // nil: the store keeps none
	data  *dataplane    // nil: it moves no data

	leaving atomic.Bool // readiness fails from here on
}

// openNode opens everything that a node needs: its listeners first, then its
// store, then what stands on them. It registers nothing yet.
func openNode(ctx context.Context, c Config, log *slog.Logger, t *tracer) (_ *node, err error) {
	n := &node{started: c, config: c, log: log, metrics: newMetrics(), tracer: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.tls, err = c.Internal.TLS.load(); err != nil {
		return nil, err
	}
	if n.publicTLS, err = c.TLS.load(); err != nil {
		return nil, err
	}
	if err := n.listen(ctx); err != nil {
		return nil, err
	}
	n.config.Internal.Advertise = c.advertised(n.internal.Addr().String())
	if n.config.Slot == "" {
		_, n.config.Slot, _ = strings.Cut(n.config.Internal.Advertise, "://")
	}
	n.sealer = newSealer(c, log, n.metrics)
	if n.store, err = openSealed(ctx, c, n.sealer, log, n.metrics); err != nil {
		return nil, err
	}
	if err := n.join(ctx); err != nil {
		return nil, err
	}
	gateway, err := n.newGateway(ctx, n.config)
	if err != nil {
		return nil, err
	}
	n.gateway.Store(gateway)
	operators, err := c.Operators.load()
	if err != nil {
		return nil, err
	}
	n.operators.Store(operators)
	return n, nil
}

// join builds what takes part in the fleet.
func (n *node) join(ctx context.Context) error {
	var err error
	if n.asker, err = newAsker(n.config, n.tls, func(id records.ExecutorID) (records.Executor, bool) {
		return n.takeover.Lookup(id)
	}); err != nil {
		return err
	}
	n.audit = newAudit(n.config.Audit.Level, n.store, n.metrics, n.log)
	config := n.config.takeover()
	config.Logger, config.Events = n.log, n.audit
	config.Recover = func(r records.Record) (takeover.Terms, takeover.Work, bool) {
		if terms, work, known := n.data.recover(r); known {
			return terms, work, true
		}
		return n.gateway.Load().Recover(r)
	}
	if n.takeover, err = takeover.New(config, n.store, n.asker); err != nil {
		return err
	}
	n.probes, err = probe.NewHandler(probe.HandlerConfig{
		Cluster: n.config.Cluster, Version: version(), Token: n.config.Internal.Token,
		Self: n.takeover, Runs: n.takeover, Node: n, Peers: n.takeover, Prober: n.asker,
	})
	if err != nil {
		return err
	}
	n.metrics.watch(n) //nolint:contextcheck // metrics are read whenever somebody scrapes them
	if flows, err := storedFlows(ctx, n.store); err == nil {
		n.flows = flows
	}
	n.data, err = n.newDataplane(ctx)
	return err
}

// newAsker makes a client for the nodes of the fleet.
func newAsker(c Config, t *tls.Config, lookup func(records.ExecutorID) (records.Executor, bool)) (*probe.Client, error) {
	allow, err := c.allowed()
	if err != nil {
		return nil, err
	}
	return probe.NewClient(probe.ClientConfig{
		Cluster: c.Cluster, Dial: c.Takeover.DialTimeout, Header: c.Takeover.HeaderTimeout,
		Allow: allow, TLS: t, Token: c.Internal.Token, Lookup: lookup,
	}), nil
}

// Status implements [probe.Node]: a node that is told to leave says so before
// it begins to.
func (n *node) Status() probe.Status {
	s := n.takeover.Status()
	if n.leaving.Load() && s.State == records.Active {
		s.State = records.Draining
	}
	return s
}

// run serves until the node has left: after leave, with nil, once everything
// was done and every answer delivered; at once when ctx ends.
func (n *node) run(ctx context.Context) error {
	public, internal := n.publicServer(), n.internalServer()
	n.log.InfoContext(ctx, "listening", "public", n.public.Addr().String(), "internal", n.internal.Addr().String())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.serveOn(public, n.public) })
	g.Go(func() error { return n.serveOn(internal, n.internal) })
	g.Go(func() error { n.audit.run(ctx); return nil })
	moving, stopMoving := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return n.data.run(moving) })
	g.Go(func() error {
		left := n.takeover.Run(ctx)
		stopMoving()
		n.audit.end()
		answered := n.deliver(ctx, public)
		return errors.Join(left, answered, internal.Close())
	})
	return g.Wait()
}

// hurry is how long answers may take that are on their way when a node is
// stopped at once.
const hurry = time.Second

// deliver ends the public server once the answers under way have been
// written. New connections are refused from here on.
func (n *node) deliver(ctx context.Context, public *http.Server) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.config.Takeover.DrainTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(hurry, cancel) })()
	if err := public.Shutdown(limit); err != nil {
		return errors.Join(fmt.Errorf("answers were cut off: %w", err), public.Close())
	}
	return nil
}

// leave begins the end: readiness fails, and after the delay, in which
// balancers notice, nothing new is claimed.
func (n *node) leave(ctx context.Context) {
	delay := n.config.Takeover.DrainDelay
	n.log.InfoContext(ctx, "leaving: readiness fails from now on", "drain_delay", delay.String())
	n.leaving.Store(true)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		n.data.drain()
		n.takeover.Drain()
	case <-ctx.Done():
	}
}

// close lets go of everything. The node does not run any more.
func (n *node) close() error {
	var faults []error
	if g := n.gateway.Load(); g != nil {
		faults = append(faults, g.Close())
	}
	faults = append(faults, n.queries.close())
	n.data.close()
	if n.asker != nil {
		faults = append(faults, n.asker.Close())
	}
	if n.store != nil {
		faults = append(faults, n.store.Close())
	}
	for _, l := range []net.Listener{n.public, n.internal} {
		if l != nil {
			_ = l.Close() // the servers may have closed it
		}
	}
	return errors.Join(faults...)
}
