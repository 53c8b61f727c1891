package probe_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

const cluster = "test"

// asProcess makes this test binary serve as a node instead of running tests.
const asProcess = "PROBE_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		serveAsProcess()
		return
	}
	// A server lingers for half a second, on purpose and for longer than is waited
	// here, after it has refused the rest of a body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience bounds every wait of a test for something that will happen.
const patience = 30 * time.Second

// eventually polls the condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-tick.C:
		}
	}
}

func executorID(b byte) records.ExecutorID { return records.ExecutorID{0: b, 15: 1} }

func recordID(n int) records.ID {
	return records.Key{Key: fmt.Sprint(n)}.ID()
}

// runningSet is a running set of a test.
type runningSet struct {
	mu      sync.Mutex
	entries map[records.ID]chan struct{}
	all     bool // everything runs, for ever
	asked   atomic.Int64
}

func (s *runningSet) Entry(id records.ID) (<-chan struct{}, bool) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return nil, true
	}
	done, ok := s.entries[id]
	return done, ok
}

func (s *runningSet) begin(id records.ID) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = make(map[records.ID]chan struct{})
	}
	done := make(chan struct{})
	s.entries[id] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.entries, id)
		close(done)
	}
}

// peers is a list of executors of a test.
type peers struct {
	mu   sync.Mutex
	byID map[records.ExecutorID]records.Executor
}

func (p *peers) add(e records.Executor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = make(map[records.ExecutorID]records.Executor)
	}
	p.byID[e.ID] = e
}

func (p *peers) Lookup(id records.ExecutorID) (records.Executor, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byID[id]
	return e, ok
}

// node is an executor with a real listener.
type node struct {
	identity probe.Identity
	executor records.Executor
	status   probe.Status
	running  runningSet
	peers    peers
	client   *probe.Client
	handler  *probe.Handler
	accepted atomic.Int64
	mu       sync.Mutex
	conns    []net.Conn
}

// cut ends every connection to the node.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

func (n *node) Identity() probe.Identity { return n.identity }
func (n *node) Status() probe.Status     { return n.status }

// unregistered is a node that has not begun to listen.
func unregistered(t testing.TB, id byte, change func(*probe.HandlerConfig)) *node {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{identity: probe.Identity{Executor: executorID(id), Slot: fmt.Sprintf("slot-%d", id), Key: private}}
	n.executor = records.Executor{
		ID: n.identity.Executor, Slot: n.identity.Slot, PublicKey: public, Policy: records.PolicyProbe, State: records.Active,
		LeaseTTL: 15 * time.Second, AttestedAt: time.Now(), HeartbeatAt: time.Now(),
	}
	n.status = probe.Status{Executor: n.executor.ID, Slot: n.executor.Slot, State: records.Active, LeaseTTL: n.executor.LeaseTTL}
	n.client = newClient(t, func(c *probe.ClientConfig) { c.Lookup = n.peers.Lookup })
	cfg := probe.HandlerConfig{
		Cluster: cluster, Version: "v0.0.0-test",
		Self: n, Runs: &n.running, Node: n, Peers: &n.peers, Prober: n.client,
	}
	if change != nil {
		change(&cfg)
	}
	if n.handler, err = probe.NewHandler(cfg); err != nil {
		t.Fatal(err)
	}
	return n
}

// newNode listens on a free port until the test ends.
func newNode(t testing.TB, id byte, change func(*probe.HandlerConfig)) *node {
	t.Helper()
	n := unregistered(t, id, change)
	n.executor.URL = "http://" + n.serve(t, probe.Server(n.handler, nil))
	return n
}

// serve runs the server, counting connections, until the test ends.
func (n *node) serve(t testing.TB, s *http.Server) (address string) {
	t.Helper()
	l := listen(t)
	serve(t, s, acceptedBy{l, n})
	return l.Addr().String()
}

func serve(t testing.TB, s *http.Server, l net.Listener) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		err := error(nil)
		if s.TLSConfig != nil {
			err = s.ServeTLS(l, "", "")
		} else {
			err = s.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		s.Close()
		wg.Wait()
	})
}

// quiet drops what a server logs about handshakes that are meant to fail.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// acceptedBy counts and keeps the connections of a node.
type acceptedBy struct {
	net.Listener
	n *node
}

func (l acceptedBy) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.mu.Lock()
		l.n.conns = append(l.n.conns, c)
		l.n.mu.Unlock()
		l.n.accepted.Add(1)
	}
	return c, err
}

// newClient has limits that a busy test machine keeps to.
func newClient(t testing.TB, change func(*probe.ClientConfig)) *probe.Client {
	t.Helper()
	cfg := probe.ClientConfig{Cluster: cluster, Dial: 5 * time.Second, Header: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	c := probe.NewClient(cfg)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// impatient is a client for what will not answer.
func impatient(c *probe.ClientConfig) { c.Dial, c.Header = 250*time.Millisecond, 250*time.Millisecond }

// process is a node in a process of its own, which runs every record.
type process struct {
	cmd      *exec.Cmd
	executor records.Executor
}

type processIntroduction struct {
	URL       string
	PublicKey []byte
}

func startProcess(t testing.TB) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asProcess+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // its end ends the process, should the test binary be killed
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var i processIntroduction
	if err := json.NewDecoder(out).Decode(&i); err != nil {
		t.Fatal(err)
	}
	return &process{cmd: cmd, executor: records.Executor{
		ID: executorID(77), Slot: "process", URL: i.URL, PublicKey: i.PublicKey, Policy: records.PolicyProbe, State: records.Active,
		LeaseTTL: 15 * time.Second, AttestedAt: time.Now(),
	}}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// serveAsProcess is the node in its own process.
func serveAsProcess() {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	n := &node{identity: probe.Identity{Executor: executorID(77), Slot: "process", Key: private}}
	n.running.all = true
	n.client = probe.NewClient(probe.ClientConfig{Cluster: cluster})
	h, err := probe.NewHandler(probe.HandlerConfig{Cluster: cluster, Self: n, Runs: &n.running, Node: n, Peers: &n.peers, Prober: n.client})
	if err != nil {
		panic(err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	err = json.NewEncoder(os.Stdout).Encode(processIntroduction{URL: "http://" + l.Addr().String(), PublicKey: public})
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
		os.Exit(0)
	}()
	panic(probe.Server(h, (*tls.Config)(nil)).Serve(l))
}
