package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

// Two nodes over one embedded store serve all tests that do not harm them.
// Tests keep apart by their operations' names and keys.
var fleet = sync.OnceValue(func() []*node {
	folder, err := os.MkdirTemp("", "probate-api")
	if err != nil {
		panic(err)
	}
	cleanups = append(cleanups, func() { _ = os.RemoveAll(folder) })
	nodes := make([]*node, 2)
	for i := range nodes {
		nodes[i] = startNode(fmt.Sprintf("node-%d", i), openStore(filepath.Join(folder, "probate.db")))
		cleanups = append(cleanups, nodes[i].close)
	}
	return nodes
})

var cleanups []func()

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if play, is := children[os.Args[1]]; is {
			os.Exit(play(os.Args[2:]))
		}
	}
	code := m.Run()
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
	if code == 0 {
		// A server lingers for half a second, on purpose and for longer than is waited
		// here, after it has refused the rest of a body.
		if err := goleak.Find(goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// node is a takeover.Node with what it needs around it.
type node struct {
	*takeover.Node
	close func()
}

func openStore(path string) records.Store {
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Cluster: "test"})
	if err != nil {
		panic(err)
	}
	return s
}

// startNode runs a node until close, and returns once it serves.
func startNode(slot string, store records.Store, tune ...func(c *takeover.Config)) *node {
	listener := listen()
	n := &node{}
	client := probe.NewClient(probe.ClientConfig{
		Cluster: "test", Dial: 300 * time.Millisecond, Header: 400 * time.Millisecond,
		Lookup: func(id records.ExecutorID) (records.Executor, bool) { return n.Lookup(id) },
	})
	config := takeover.Config{
		Slot: slot, URL: "http://" + listener.Addr().String(),
		Heartbeat: 200 * time.Millisecond, StatementTimeout: time.Second, LeaseTTL: 6 * time.Second, Margin: time.Second,
		ConfirmDown: 300 * time.Millisecond, ProbeBudget: 4 * time.Second,
		DialTimeout: 300 * time.Millisecond, HeaderTimeout: 400 * time.Millisecond, SettleRead: time.Second,
		DrainTimeout: 10 * time.Second,
	}
	for _, change := range tune {
		change(&config)
	}
	var err error
	n.Node, err = takeover.New(config, store, client)
	if err != nil {
		panic(err)
	}
	handler, err := probe.NewHandler(probe.HandlerConfig{
		Cluster: "test", Version: "test", Self: n.Node, Runs: n.Node, Node: n.Node, Peers: n.Node, Prober: client,
	})
	if err != nil {
		panic(err)
	}
	server := probe.Server(handler, nil)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	ended := make(chan struct{})
	running.Go(func() {
		defer close(ended)
		_ = n.Run(ctx) // what ended it early shows in the tests
	})
	n.close = func() {
		stop()
		<-ended
		_ = server.Close()
		running.Wait()
		_ = client.Close()
		_ = store.Close()
	}
	deadline := time.Now().Add(20 * time.Second)
	for n.Status().State != records.Active {
		if time.Now().After(deadline) {
			panic("node does not come to serve")
		}
		<-time.After(5 * time.Millisecond)
	}
	return n
}

// testLog shows what was logged when the test fails.
func testLog(t testing.TB) *slog.Logger {
	l := &lines{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.Failed() && l.b.Len() > 0 {
			t.Log(l.b.String())
		}
	})
	return slog.New(slog.NewTextHandler(l, nil))
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
