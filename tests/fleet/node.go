//go:build unix

package fleet

import (
	"context"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Spec is what a node is told.
type Spec struct {
	Slot     string
	DSN      string // of the store
	Cluster  string
	Public   string // where it takes requests: host:port, or unix: and a path
	Internal string // host:port, where peers ask it
	Ledger   string // base URL of the service behind it
	Times    Times
	Policy   string // probe or lease; empty: probe
	// Takeovers is how many executions may be begun after a take-over; 0: the
	// default.
	Takeovers int
	// Sweeps: it recovers records of dead executors that nobody asks for.
	Sweeps bool
}

// Times are a node's. Zero means its default.
type Times struct {
	Heartbeat, Statement, Lease, Margin time.Duration
	ConfirmDown, ProbeBudget            time.Duration
	Dial, Header                        time.Duration
	SettleRead, Sweep                   time.Duration
}

// Brisk are times at which a test may wait for a lease to run out.
func Brisk() Times {
	return Times{
		Heartbeat: 150 * time.Millisecond, Statement: 500 * time.Millisecond, Lease: 3 * time.Second, Margin: 700 * time.Millisecond,
		ConfirmDown: 300 * time.Millisecond, ProbeBudget: 2500 * time.Millisecond,
		Dial: 400 * time.Millisecond, Header: 500 * time.Millisecond,
		SettleRead: 500 * time.Millisecond, Sweep: 500 * time.Millisecond,
	}
}

// Program builds the command that runs a node. The process must log, as JSON,
// a line "listening" with the fields public and internal: the addresses, in
// the form of Spec, with the ports that the kernel chose.
type Program func(ctx context.Context, s Spec) *exec.Cmd

// Node is one process of a fleet.
type Node struct {
	*Process
	Spec     Spec
	Internal string // base URL of its probe endpoint

	program Program
	client  *http.Client
	base    string // base URL of its public endpoint, for client
}

// Launch starts a node and waits until it listens.
func Launch(t testing.TB, program Program, s Spec) *Node {
	t.Helper()
	n := &Node{Process: Start(t, s.Slot, program(t.Context(), s)), Spec: s, program: program}
	var said []Line
	Await(t, s.Slot+" listens", func() bool {
		if n.Ended() {
			t.Fatalf("node %s ended: %v", s.Slot, n.err)
		}
		said = n.Output.Said("listening")
		return len(said) > 0
	})
	n.Spec.Public, n.Spec.Internal = said[0].Field("public"), said[0].Field("internal")
	n.Internal = "http://" + n.Spec.Internal
	n.connect(t)
	return n
}

// Restart starts another process in the node's place: same slot, same
// addresses. The old one must have ended.
func (n *Node) Restart(t testing.TB) *Node {
	t.Helper()
	if !n.Ended() {
		t.Fatalf("node %s has not ended", n.Spec.Slot)
	}
	return Launch(t, n.program, n.Spec)
}

// connect makes the client of the public endpoint.
func (n *Node) connect(t testing.TB) {
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	n.base = "http://" + n.Spec.Public
	if path, ok := strings.CutPrefix(n.Spec.Public, "unix:"); ok {
		n.base = "http://node"
		transport.DialContext = dialer(&net.Dialer{}, "unix", path)
	}
	n.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}
