package takeover_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

// fleet is several nodes in this process: real listeners, real probes, one
// real store, and a link that can fail between any two of them.
type fleet struct {
	t     *testing.T
	open  func(t testing.TB) records.Store // one more node's own handle
	mu    sync.Mutex
	nodes map[string]*member
	links map[[2]string]*link // from, to
}

// member is one node of a fleet.
type member struct {
	*takeover.Node
	name     string
	url      string
	store    records.Store
	server   *http.Server
	client   *probe.Client
	hardStop context.CancelFunc
	ended    chan struct{}
	err      error // of Run, once ended
	log      *testLog
}

// brisk are times at which a test may wait for a lease to run out.
func brisk() takeover.Config {
	return takeover.Config{
		Heartbeat: 100 * time.Millisecond, StatementTimeout: 400 * time.Millisecond,
		LeaseTTL: 2 * time.Second, Margin: 500 * time.Millisecond,
		ConfirmDown: 300 * time.Millisecond, ProbeBudget: 2 * time.Second,
		DialTimeout: 300 * time.Millisecond, HeaderTimeout: 400 * time.Millisecond,
		SettleRead: 500 * time.Millisecond, SweepEvery: 500 * time.Millisecond, PurgeEvery: time.Second,
		DrainTimeout: 10 * time.Second,
	}
}

// newFleet makes an empty fleet over a fresh embedded store.
func newFleet(t *testing.T) *fleet {
	path := filepath.Join(t.TempDir(), "probate.db")
	return newFleetOver(t, func(t testing.TB) records.Store {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func newFleetOver(t *testing.T, open func(t testing.TB) records.Store) *fleet {
	return &fleet{t: t, open: open, nodes: map[string]*member{}, links: map[[2]string]*link{}}
}

// start runs nodes of these names, each its own slot, and waits until they
// serve and know each other.
func (f *fleet) start(config takeover.Config, names ...string) []*member {
	f.t.Helper()
	members := make([]*member, len(names))
	for i, name := range names {
		members[i] = f.launch(config, name, f.open(f.t))
	}
	for _, m := range members {
		f.serving(m)
	}
	return members
}

// launch starts one node over the given store, without waiting for it.
func (f *fleet) launch(config takeover.Config, name string, store records.Store) *member {
	f.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	m := &member{name: name, url: "http://" + listener.Addr().String(), store: store, ended: make(chan struct{}), log: &testLog{t: f.t}}
	config.Slot, config.URL = name, m.url
	config.Logger = slog.New(slog.NewTextHandler(m.log, nil)).With("node", name)
	m.client = probe.NewClient(probe.ClientConfig{
		Cluster: "test", Dial: config.DialTimeout, Header: config.HeaderTimeout,
		Lookup: func(id records.ExecutorID) (records.Executor, bool) { return m.Lookup(id) },
	})
	if m.Node, err = takeover.New(config, m.store, linkedAsker{Asker: m.client, fleet: f, from: name}); err != nil {
		f.t.Fatal(err)
	}
	handler, err := probe.NewHandler(probe.HandlerConfig{
		Cluster: "test", Version: "test", Self: m.Node, Runs: m.Node, Node: m.Node, Peers: m.Node, Prober: linkedAsker{Asker: m.client, fleet: f, from: name},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	m.server = probe.Server(handler, nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = m.server.Serve(listener)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	m.hardStop = cancel
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx)
	}()
	f.mu.Lock()
	f.nodes[name] = m
	f.mu.Unlock()
	f.t.Cleanup(func() {
		m.hardStop()
		<-m.ended
		_ = m.server.Close()
		<-served
		_ = m.client.Close()
		_ = m.store.Close()
	})
	return m
}

func (f *fleet) serving(m *member) {
	f.t.Helper()
	await(f.t, m.name+" serves and knows its peers", func() bool {
		if m.Status().State != records.Active {
			return false
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, other := range f.nodes {
			if _, known := m.Lookup(other.Identity().Executor); !known && other.Status().State == records.Active {
				return false
			}
		}
		return true
	})
}

// die makes a node vanish as a killed process does: its sockets close and it
// says nothing more to anybody. What it runs goes on, unseen, until the test
// ends.
func (f *fleet) die(m *member) {
	if g, ok := m.store.(*gate); ok {
		g.shut()
	}
	_ = m.server.Close()
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

// testLog keeps what a node logs and shows it when the test fails.
type testLog struct {
	t     *testing.T
	mu    sync.Mutex
	lines strings.Builder
	hooks bool
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hooks {
		l.hooks = true
		l.t.Cleanup(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.t.Failed() {
				l.t.Log(l.lines.String())
			}
		})
	}
	return l.lines.Write(p)
}

func (l *testLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.lines.String(), text)
}
