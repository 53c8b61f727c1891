//go:build unix

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// Ask is how a request wants to be handled. The zero value books an entry in
// the ledger, asks the ledger what became of an interrupted one, and waits as
// long as a test does.
type Ask struct {
	// Work: "" books an entry, "instant" answers at once, "die" kills the node.
	Work string
	// Reconciler: "" asks the ledger, "reexecute" says that nothing was done,
	// "none" can tell nothing.
	Reconciler string
	// Stubborn work does not hear that its context has ended.
	Stubborn bool
	// Wait is how long a duplicate waits; 0: as long as a test does.
	Wait time.Duration
}

func (a Ask) query() string {
	v := url.Values{"work": {a.Work}, "reconciler": {a.Reconciler}, "wait": {patience.String()}}
	if a.Stubborn {
		v.Set("stubborn", "yes")
	}
	if a.Wait != 0 {
		v.Set("wait", a.Wait.String())
	}
	return v.Encode()
}

// Answer is what a node says to a request.
type Answer struct {
	Status   int    `json:"-"`       // 200, or 503: ask another node
	Outcome  string `json:"outcome"` // of takeover.OutcomeKind
	Body     string `json:"body"`    // of the stored response
	Epoch    int64  `json:"epoch"`
	Executor string `json:"executor"`
	Error    string `json:"error"`
}

// Do asks the node and waits for its answer. The error is the connection's.
func (n *Node) Do(ctx context.Context, key string, a Ask) (Answer, error) {
	var answer Answer
	target := n.base + "/do/" + url.PathEscape(key) + "?" + a.query()
	status, err := n.exchange(ctx, http.MethodPost, target, &answer)
	answer.Status = status
	return answer, err
}

// Call is a request under way.
type Call struct {
	node   *Node
	done   chan struct{}
	hangUp context.CancelFunc
	answer Answer
	err    error
}

// Call asks the node in the background.
func (n *Node) Call(t testing.TB, key string, a Ask) *Call {
	ctx, cancel := context.WithCancel(t.Context())
	c := &Call{node: n, done: make(chan struct{}), hangUp: cancel}
	go func() {
		defer close(c.done)
		c.answer, c.err = n.Do(ctx, key, a)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

// HangUp closes the client's connection and returns once the request has
// ended here.
func (c *Call) HangUp() {
	c.hangUp()
	<-c.done
}

// Answer waits for the answer.
func (c *Call) Answer(t testing.TB) Answer {
	t.Helper()
	c.await(t)
	if c.err != nil {
		t.Fatalf("node %s: %v", c.node.Spec.Slot, c.err)
	}
	return c.answer
}

// Fails waits for the end of a request whose node dies.
func (c *Call) Fails(t testing.TB) {
	t.Helper()
	c.await(t)
	if c.err == nil {
		t.Fatalf("node %s answered %+v, want a broken connection", c.node.Spec.Slot, c.answer)
	}
}

func (c *Call) await(t testing.TB) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatalf("node %s does not answer", c.node.Spec.Slot)
	}
}

// Check fails the test if the answer is another one.
func (a Answer) Check(t testing.TB, outcome, body string) Answer {
	t.Helper()
	if a.Status != http.StatusOK || a.Outcome != outcome || a.Body != body {
		t.Fatalf("answer = %+v, want %s with body %q", a, outcome, body)
	}
	return a
}

// Stats are what a node has counted since its start.
type Stats struct {
	Statements map[string]int `json:"statements"` // sent to the store, by name
	Failed     map[string]int `json:"failed"`     // of these
	Asked      map[string]int `json:"asked"`      // other executors: probe, watch, witness
	Waiting    int            `json:"waiting"`    // duplicates that wait now
}

// Stats reads the node's counters.
func (n *Node) Stats(t testing.TB) Stats {
	t.Helper()
	var s Stats
	if _, err := n.exchange(t.Context(), http.MethodGet, n.base+"/stats", &s); err != nil {
		t.Fatalf("node %s: %v", n.Spec.Slot, err)
	}
	return s
}

// Health is what GET /probe says.
type Health struct {
	Ready        bool          `json:"-"`
	Executor     string        `json:"executor"`
	State        string        `json:"state"`
	InProgress   int           `json:"in_progress"`
	HeartbeatAge time.Duration `json:"-"`
	AgeMS        int64         `json:"heartbeat_age_ms"`
}

// Health asks the node's own listener how it is.
func (n *Node) Health(ctx context.Context) (Health, error) {
	var h Health
	status, err := n.exchange(ctx, http.MethodGet, n.base+"/probe", &h)
	h.Ready, h.HeartbeatAge = status == http.StatusOK, time.Duration(h.AgeMS)*time.Millisecond
	return h, err
}

func (n *Node) exchange(ctx context.Context, method, target string, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := n.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return resp.StatusCode, fmt.Errorf("%s: %w: %s", target, err, body)
	}
	return resp.StatusCode, nil
}
