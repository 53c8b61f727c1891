package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// service is what stands behind the gateway. It counts what it executes, and
// holds requests whose body is "hold" until it is told otherwise.
type service struct {
	*httptest.Server
	begun   chan string // a key, when a held request has arrived
	release chan struct{}

	mu       sync.Mutex
	executed map[string]int
	headers  []http.Header
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{begun: make(chan string, 100), release: make(chan struct{}), executed: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.executed[key]++
	s.headers = append(s.headers, r.Header.Clone())
	s.mu.Unlock()
	if string(body) == "hold" {
		s.begun <- key
		select {
		case <-s.release:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Location", "/orders/"+key)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "order of "+key) // the gateway may be gone
}

func (s *service) times(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed[key]
}

// quick are times for tests: they find a dead node in seconds, on a busy
// machine, too. Nobody sweeps: what a duplicate takes over is to be seen.
const quick = `
takeover: {heartbeat: 200ms, statement_timeout: 1s, lease_ttl: 6s, margin: 1s, probe_budget: 4s, dial_timeout: 300ms, header_timeout: 400ms, sweep_every: 10m, drain_timeout: 20s%s}
`

// routeTo is a file's route for POST on a path.
func routeTo(upstream, path string) string {
	return fmt.Sprintf(`
  - match: {methods: [POST], path: %s}
    upstream: %s
    operation: order%s
    principal: none
    reconcile: reexecute
`, path, upstream, strings.ReplaceAll(path, "/", "-"))
}

// configure writes a configuration: loopback, ports of the kernel's choice,
// this store, a route POST /orders to the upstream, and more lines.
func configure(t *testing.T, store, upstream string, more ...string) (file string) {
	t.Helper()
	var text strings.Builder
	text.WriteString("store: " + store + "\nlisten: 127.0.0.1:0\ninternal: {listen: 127.0.0.1:0, allow: [127.0.0.0/8]}\n")
	var takeover strings.Builder
	for _, m := range more {
		if rest, is := strings.CutPrefix(m, "takeover:"); is {
			takeover.WriteString(", " + rest)
		} else {
			text.WriteString(m + "\n")
		}
	}
	text.WriteString(fmt.Sprintf(quick, takeover.String()) + "routes:" + routeTo(upstream, "/orders"))
	file = filepath.Join(t.TempDir(), "probate.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// sqliteStore names a fresh embedded store.
func sqliteStore(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "probate.db")
}

// answer is what a client was told.
type answer struct {
	status int
	how    string // Idempotency-Status
	body   string
	err    error
	last   bool // the connection is closed after it
}

// browser has connections of its own, closed when the test ends.
func browser(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// order sends a keyed request.
func order(ctx context.Context, client *http.Client, base, key, body string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/orders", bytes.NewBufferString(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Idempotency-Key", key)
	req.GetBody = nil
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Idempotency-Status"), string(text), err, resp.Close}
}

// get reads a URL.
func get(ctx context.Context, client *http.Client, url string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// ready waits until a node serves.
func ready(t *testing.T, client *http.Client, base string) {
	t.Helper()
	await(t, base+" serves", func() bool {
		status, _ := get(t.Context(), client, base+"/probe")
		return status == http.StatusOK
	})
}
