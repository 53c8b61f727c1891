package compose_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// TestBalancer holds deploy/haproxy.cfg against what it says about sending a
// request twice, with servers in the places of the nodes.
func TestBalancer(t *testing.T) {
	t.Parallel()
	p := &topology{
		project: load(t), programs: map[string]string{"haproxy": haproxy()},
		addresses: map[string]string{}, processes: map[string]*fleet.Process{},
	}
	nodes := &standIns{came: map[string][]string{}}
	for _, name := range nodeNames {
		server := httptest.NewServer(nodes.as(name))
		t.Cleanup(server.Close)
		p.addresses[name+":8080"] = strings.TrimPrefix(server.URL, "http://")
	}
	p.start(t, "balancer")
	base := "http://" + p.address(t, "balancer", "8080")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	fleet.Await(t, "the balancer sends requests to all", func() bool {
		if p.processes["balancer"].Ended() {
			t.Fatal("the balancer has ended")
		}
		_, _ = send(t.Context(), client, base+"/welcome", "")
		return nodes.seen("/welcome") == len(nodeNames)
	})

	t.Run("SendsARequestWithAKeyElsewhereAfterA503", func(t *testing.T) {
		for i := range 6 { // the first node answers 503 to a third of all
			path := fmt.Sprintf("/unavailable-at-node-1/%d", i)
			if status, err := send(t.Context(), client, base+path, "k"); status != http.StatusOK {
				t.Errorf("%s: %d, %v", path, status, err)
			}
		}
	})
	t.Run("SendsARequestWithoutAKeyOnce", func(t *testing.T) {
		refused := 0
		for i := range 6 {
			path := fmt.Sprintf("/unavailable-at-node-1/unkeyed-%d", i)
			status, err := send(t.Context(), client, base+path, "")
			if err != nil || nodes.times(path) != 1 {
				t.Errorf("%s: %v, came %d times", path, err, nodes.times(path))
			}
			if status == http.StatusServiceUnavailable {
				refused++
			}
		}
		if refused == 0 {
			t.Error("none of them reached the node that answers 503")
		}
	})
	t.Run("SendsNothingAgainAfterABrokenConnection", func(t *testing.T) {
		for i, key := range []string{"k", "k", "k", "", "", ""} {
			path := fmt.Sprintf("/broken/%d", i)
			if status, err := send(t.Context(), client, base+path, key); err == nil && status != http.StatusBadGateway {
				t.Errorf("%s: %d", path, status)
			}
			if n := nodes.times(path); n != 1 {
				t.Errorf("%s came %d times", path, n)
			}
		}
	})
}

func send(ctx context.Context, client *http.Client, url, key string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	r.GetBody = nil
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// standIns stand in for nodes and note what comes to whom.
type standIns struct {
	mu   sync.Mutex
	came map[string][]string // names, by path
}

func (s *standIns) as(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/probe" {
			return
		}
		s.mu.Lock()
		s.came[r.URL.Path] = append(s.came[r.URL.Path], name)
		s.mu.Unlock()
		switch {
		case strings.HasPrefix(r.URL.Path, "/broken/"):
			panic(http.ErrAbortHandler)
		case name == "node-1" && strings.HasPrefix(r.URL.Path, "/unavailable-at-node-1/"):
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// times is how often a request came.
func (s *standIns) times(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came[path])
}

// seen is to how many it came.
func (s *standIns) seen(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, name := range s.came[path] {
		names[name] = true
	}
	return len(names)
}
