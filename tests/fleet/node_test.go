//go:build unix

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/tests/fleet"
)

// node is the program that these tests start: package takeover, a probe
// endpoint for the peers, and an endpoint for clients.
type node struct {
	*takeover.Node
	spec  fleet.Spec
	log   *slog.Logger
	store *postgres.Store
	asker *countingAsker

	public, internal net.Listener
	probes           *probe.Handler
	counts           counts
}

// runNode runs until it was told to leave and has left: SIGTERM drains, a
// second one ends at once.
func runNode(raw string) (err error) {
	n := &node{log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	if err := json.Unmarshal([]byte(raw), &n.spec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leave := make(chan os.Signal, 2)
	signal.Notify(leave, syscall.SIGTERM)
	if err := n.open(ctx); err != nil {
		return err
	}
	defer n.close()
	serving := n.listen()
	defer serving()
	n.log.Info("listening", "public", address(n.public), "internal", address(n.internal))
	go func() {
		<-leave
		n.Drain()
		<-leave
		cancel()
	}()
	return n.Run(ctx)
}

// open opens the store and builds the node over it.
func (n *node) open(ctx context.Context) (err error) {
	s := n.spec
	if n.public, err = bind(ctx, s.Public); err != nil {
		return err
	}
	if n.internal, err = bind(ctx, s.Internal); err != nil {
		return err
	}
	data := s.Times.Statement * 2
	n.store, err = postgres.Open(ctx, postgres.Config{
		DSN: s.DSN, Cluster: s.Cluster, StatementTimeout: s.Times.Statement, DataTimeout: data,
		Logger: n.log, Observe: n.counts.observe,
	})
	if err != nil {
		return err
	}
	n.asker = &countingAsker{counts: &n.counts, client: probe.NewClient(probe.ClientConfig{
		Cluster: s.Cluster, Dial: s.Times.Dial, Header: s.Times.Header,
		Lookup: func(id records.ExecutorID) (records.Executor, bool) { return n.Lookup(id) },
	})}
	config := takeover.Config{
		Slot: s.Slot, URL: "http://" + address(n.internal), Policy: records.Policy(s.Policy),
		Heartbeat: s.Times.Heartbeat, StatementTimeout: s.Times.Statement, LeaseTTL: s.Times.Lease, Margin: s.Times.Margin,
		ConfirmDown: s.Times.ConfirmDown, ProbeBudget: s.Times.ProbeBudget, DialTimeout: s.Times.Dial, HeaderTimeout: s.Times.Header,
		SettleRead: s.Times.SettleRead, SweepEvery: s.Times.Sweep, Takeovers: s.Takeovers, Logger: n.log,
	}
	if s.Sweeps {
		config.Recover = n.recover
	}
	if n.Node, err = takeover.New(config, n.store, n.asker); err != nil {
		return err
	}
	n.probes, err = probe.NewHandler(probe.HandlerConfig{
		Cluster: s.Cluster, Version: "test", Self: n, Runs: n, Node: n, Peers: n, Prober: n.asker,
	})
	return err
}

// listen serves both endpoints and returns what ends them: the clients' once
// every answer was given, then the peers'.
func (n *node) listen() (stop func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /do/{key}", n.do)
	mux.HandleFunc("GET /stats", n.stats)
	mux.HandleFunc("GET /probe", n.probes.Health)
	public := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	peers := probe.Server(n.probes, nil)
	var serving sync.WaitGroup
	serving.Go(func() { n.serve(public, n.public) })
	serving.Go(func() { n.serve(peers, n.internal) })
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := public.Shutdown(ctx); err != nil {
			n.log.Error("answers were not given", "error", err)
		}
		_ = peers.Close()
		serving.Wait()
	}
}

func (n *node) serve(s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		n.log.Error("serve", "error", err)
	}
}

func (n *node) close() {
	if err := errors.Join(n.asker.client.Close(), n.store.Close()); err != nil {
		n.log.Error("close", "error", err)
	}
}

// bind listens on host:port, or on unix: and a path. A port that was this
// slot's a moment ago may be held for another moment.
func bind(ctx context.Context, at string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		_ = os.Remove(path) // of the boot before
		return new(net.ListenConfig).Listen(ctx, "unix", path)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return l, err
		}
		<-time.After(5 * time.Millisecond)
	}
}

func address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// stats is GET /stats.
func (n *node) stats(w http.ResponseWriter, _ *http.Request) {
	s := n.counts.snapshot()
	s.Waiting = n.Waiting()
	respond(w, http.StatusOK, s)
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client is gone; nobody to tell
	}
}

// counts are what a node has done since its start.
type counts struct {
	mu    sync.Mutex
	stats fleet.Stats
}

func (c *counts) observe(o postgres.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.stats.Statements, o.Name)
	if errors.Is(o.Err, records.ErrUnavailable) {
		count(&c.stats.Failed, o.Name)
	}
}

func (c *counts) asked(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.stats.Asked, what)
}

func (c *counts) snapshot() fleet.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fleet.Stats{Statements: maps.Clone(c.stats.Statements), Failed: maps.Clone(c.stats.Failed), Asked: maps.Clone(c.stats.Asked)}
}

func count(m *map[string]int, name string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[name]++
}

// countingAsker counts what it asks.
type countingAsker struct {
	client *probe.Client
	counts *counts
}

func (a *countingAsker) Probe(ctx context.Context, e records.Executor, id records.ID, epoch int64) probe.Observation {
	a.counts.asked("probe")
	return a.client.Probe(ctx, e, id, epoch)
}

func (a *countingAsker) Watch(ctx context.Context, e records.Executor, id records.ID, epoch int64, wait time.Duration) probe.Observation {
	a.counts.asked("watch")
	return a.client.Watch(ctx, e, id, epoch, wait)
}

func (a *countingAsker) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony {
	a.counts.asked("witness")
	return a.client.Witness(ctx, w, suspect)
}

// runRelay leads TCP addresses to unix sockets, for parties in another
// network namespace.
func runRelay(raw string) error {
	var routes map[string]string // from host:port to path
	if err := json.Unmarshal([]byte(raw), &routes); err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	for from, to := range routes {
		l, err := bind(context.Background(), from)
		if err != nil {
			return err
		}
		fleet.Forward(l, "unix", to)
	}
	log.Info("relaying", "routes", fmt.Sprint(routes))
	select {} // until standard input closes
}
