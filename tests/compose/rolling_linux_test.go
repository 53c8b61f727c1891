package compose_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/tests/fleet"
)

// TestTopology runs compose.yaml as processes.
func TestTopology(t *testing.T) {
	t.Parallel()
	p := newTopology(t)
	p.up(t)

	t.Run("MigratesOnceAndSaysSo", func(t *testing.T) {
		p.once(t, "migrate") // what docker compose up does again
	})
	t.Run("LosesNothingWhenAllNodesAreRestarted", func(t *testing.T) { rollingRestart(t, p) })
}

// rollingRestart restarts every node, one after the other, by SIGTERM, while
// clients pay, pay twice with one key, and visit. Every request must be
// answered as if nothing had happened, and nothing may happen twice.
func rollingRestart(t *testing.T, p *topology) {
	c := newClients(t, "http://"+p.address(t, "balancer", "8080"))
	fleet.Await(t, "the balancer knows a node that serves", func() bool {
		if p.processes["balancer"].Ended() {
			t.Fatal("the balancer has ended")
		}
		return c.served()
	})
	c.start(4)
	for _, name := range nodeNames {
		p.awaitTraffic(t, name)
	}
	for _, name := range nodeNames {
		old := p.processes[name]
		old.Term(t)
		if err := old.AwaitEnd(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p.start(t, name)
		p.awaitHealthy(t, name)
		p.awaitTraffic(t, name)
	}
	c.stop()

	for _, fault := range c.faults {
		t.Error(fault)
	}
	if c.paid < 100 {
		t.Errorf("only %d payments were made meanwhile", c.paid)
	}
	ledger := c.ledger(t)
	times := map[string]int{}
	for _, payment := range ledger.Payments {
		times[payment.Key]++
	}
	for key, n := range times {
		if n != 1 {
			t.Errorf("%s was paid %d times", key, n)
		}
	}
	if len(times) != c.paid || ledger.Visits != c.visited {
		t.Errorf("%d payments and %d visits in the ledger, %d and %d were made", len(times), ledger.Visits, c.paid, c.visited)
	}
	t.Logf("%d payments, %d duplicates, %d visits", c.paid, c.repeated, c.visited)
}

// awaitTraffic waits until the balancer sends requests to a node that has just
// come to serve.
func (p *topology) awaitTraffic(t *testing.T, name string) {
	t.Helper()
	before := p.answered(t, name)
	fleet.Await(t, "the balancer sends requests to "+name, func() bool { return p.answered(t, name) > before })
}

// answered is how many keyed requests a node has answered.
func (p *topology) answered(t *testing.T, name string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address(t, name, "8081")+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer resp.Body.Close()
	total := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if series, count, found := strings.Cut(lines.Text(), "} "); found && strings.HasPrefix(series, "probate_requests_total{") {
			n, err := strconv.ParseFloat(count, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += int(n)
		}
	}
	return total
}

// clients are what comes in through the balancer.
type clients struct {
	base   string
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu                      sync.Mutex
	faults                  []string
	paid, repeated, visited int
}

func newClients(t *testing.T, base string) *clients {
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	c := &clients{base: base, client: &http.Client{Transport: transport, Timeout: time.Minute}}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	t.Cleanup(func() {
		c.stop()
		transport.CloseIdleConnections()
	})
	return c
}

// start starts clients that go on until stop. Each is a little over 10
// requests a second.
func (c *clients) start(count int) {
	for i := range count {
		c.wg.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for n := 0; c.ctx.Err() == nil; n++ {
				c.round(fmt.Sprintf("key-%d-%d", i, n), n)
				select {
				case <-tick.C:
				case <-c.ctx.Done():
				}
			}
		})
	}
}

func (c *clients) stop() {
	c.cancel()
	c.wg.Wait()
}

// round pays twice at the same time with one key, and visits. What has begun
// is finished: a client that stops is no fault of the fleet.
func (c *clients) round(key string, n int) {
	ctx := context.WithoutCancel(c.ctx)
	body := fmt.Sprintf(`{"amount":%d}`, n)
	var answers [2]string
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() { answers[i] = c.post(ctx, "/orders/1042/payments", key, body, http.StatusCreated) })
	}
	both.Wait()
	visit := c.post(ctx, "/visits", "", "", http.StatusOK)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.paid++
	c.repeated++
	if answers[0] != answers[1] {
		c.faults = append(c.faults, fmt.Sprintf("%s: one is answered %s, the other %s", key, answers[0], answers[1]))
	}
	if visit != "" {
		c.visited++
	}
}

// post sends a request, once, and returns its answer. Any other status than
// the one wanted, and any error, is a fault.
func (c *clients) post(ctx context.Context, path, key, body string, want int) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return c.fault(path, key, err.Error())
	}
	r.GetBody = nil // sent once
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return c.fault(path, key, err.Error())
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		return c.fault(path, key, fmt.Sprintf("%d %v %v %s", resp.StatusCode, err, resp.Header, text))
	}
	return string(text)
}

func (c *clients) fault(path, key, what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf("%s %s %s: %s", time.Now().Format(time.StampMilli), path, key, what))
	return ""
}

// served reports whether the balancer has a node that serves.
func (c *clients) served() bool {
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.base+"/ledger", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ledger is everything that the service has done.
func (c *clients) ledger(t *testing.T) (l struct {
	Payments []struct{ Key string }
	Visits   int
},
) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+"/ledger", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l
}
