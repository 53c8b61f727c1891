//go:build unix

package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/tests/fleet"
)

const (
	fleetToken   = "a-token-that-the-fleet-shares"
	controlToken = "a-token-of-the-control-plane"
)

// node is a running node, and the service behind it.
type node struct {
	*fleet.Node
	public   string // base URL
	service  *service
	internal *document
	keyed    *document
	moved    *document // of data flows
}

// service is behind the node. Its paths say what it does with a request.
type service struct {
	url string

	mu        sync.Mutex
	questions [][]byte // that it was asked as a reconciler
	statement string   // that it answers then
	held      chan struct{}
	arrived   chan struct{}
}

func startService(t *testing.T) *service {
	s := &service{statement: applied, held: make(chan struct{}), arrived: make(chan struct{}, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{route}/{rest...}", s.serve)
	mux.HandleFunc("POST /reconcile", s.reconcile)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.release()
		server.Close()
	})
	s.url = server.URL
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("route") {
	case "broken", "released", "stored", "reconciled": // the connection breaks off
		panic(http.ErrAbortHandler)
	case "held":
		s.arrived <- struct{}{}
		<-s.held
	case "slow":
		<-s.held
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"paid":true}`))
}

// release lets go of all that is held, now and later.
func (s *service) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.held:
	default:
		close(s.held)
	}
}

func (s *service) reconcile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var question json.RawMessage
	_ = json.NewDecoder(r.Body).Decode(&question) // the schema will tell
	s.questions = append(s.questions, question)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(s.statement))
}

// tell changes what reconcilers are answered.
func (s *service) tell(statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statement = statement
}

// applied is what the service answers as a reconciler.
const applied = `{"finding": "applied", "response": {"status": 201, "headers": {"Content-Type": ["application/json"]}, "body": "{\"paid\":true}"}}`

// startNode starts probate serve on a store of its own.
func startNode(t *testing.T) *node {
	t.Helper()
	s := startService(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"jwks.json": `{"keys": []}`, "operators": operatorLines(), "asset": "the dataset's bytes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "node.yaml")
	if err := os.WriteFile(config, []byte(configuration(s.url, dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := fleet.Build(t, "../../cmd/node")
	n := &node{service: s, internal: load(t, "internal.yaml"), keyed: load(t, "idempotency.yaml"), moved: load(t, "dataflows.yaml")}
	n.Node = fleet.Launch(t, func(ctx context.Context, _ fleet.Spec) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary, "serve", "--config", config)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}, fleet.Spec{Slot: "documented"})
	n.public = "http://" + n.Spec.Public
	fleet.Await(t, "the node serves", func() bool {
		h, err := n.Health(t.Context())
		return err == nil && h.Ready
	})
	return n
}

// configuration has a route for everything that can be said of a request.
func configuration(service, dir string) string {
	nobody := "http://127.0.0.1:1" // refuses, on every host that tests run on
	var b strings.Builder
	fmt.Fprintf(&b, `
store: sqlite:%s
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", token: %s}
operators: {tokens_file: %s}
log: {format: json}
dataflows:
  enabled: true
  public_url: http://data.example/dataflows
  tokens: [%s]
  roots: [{name: files, path: %q, write: true, shared: true}]
  receive_in: files
  datasets: [{id: asset, file: {root: files, path: asset}}, {id: gone, file: {root: files, path: gone}}]
routes:
`, filepath.Join(dir, "probate.db"), fleetToken, filepath.Join(dir, "operators"), controlToken, dir)
	for _, r := range []struct{ name, upstream, more string }{
		{"plain", service, ""},
		{"held", service, ""},
		{"broken", service, ""},
		{"released", service, "on_server_error: release"},
		{"stored", service, "on_server_error: store"},
		{"slow", service, "timeout: 50ms, on_server_error: release"},
		{"reconciled", service, fmt.Sprintf("reconcile: {url: '%s/reconcile'}", service)},
		{"secret", service, "secret_response: true"},
		{"small", service, "max_request_bytes: 16"},
		{"tenant", service, "realm: {header: X-Tenant}"},
		{"asked", service, fmt.Sprintf("authorize: {url: '%s'}", nobody)},
		{"nobody", nobody, ""},
	} {
		fmt.Fprintf(&b, "  - {match: {methods: [POST], path: '/%[1]s/{id}'}, upstream: %[2]s, operation: %[1]s, resource: '{id}', required: true, principal: none, %[3]s}\n",
			r.name, r.upstream, r.more)
	}
	fmt.Fprintf(&b, "  - {match: {methods: [POST], path: '/token/{id}'}, upstream: %s, operation: token, principal: {jwt: {jwks: %s}}}\n", service, filepath.Join(dir, "jwks.json"))
	fmt.Fprintf(&b, "  - {match: {methods: [POST], path: '/named/{id}'}, upstream: %s, operation: named, principal: {headers: [Authorization]}}\n", service)
	return b.String()
}

// ask posts a body, with header lines in pairs.
func (n *node) ask(t *testing.T, base, path, body string, pairs ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

// get reads a path of the internal listener.
func (n *node) get(t *testing.T, path string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.Internal+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

// pay asks the gateway and holds the answer against the documents.
func (n *node) pay(t *testing.T, route, body, key string, pairs ...string) answer {
	t.Helper()
	if key != "" {
		pairs = append(pairs, "Idempotency-Key", key)
	}
	a := n.ask(t, n.public, "/"+route+"/1", body, pairs...)
	n.checkKeyed(t, a)
	return a
}

// checkKeyed finds the response that the fragments describe for this status.
func (n *node) checkKeyed(t *testing.T, a answer) {
	t.Helper()
	if a.status < 400 {
		n.checkMarks(t, a)
		return
	}
	name, known := map[int]string{
		400: "BadRequest", 401: "Unauthorized", 404: "NotFound", 409: "Conflict", 413: "TooLarge", 422: "KeyReused",
		500: "Failed", 502: "UpstreamFailed", 503: "Unavailable", 504: "UpstreamTimeout",
	}[a.status]
	if !known {
		t.Fatalf("status %d is not described: %s", a.status, a.body)
	}
	n.keyed.checkResponse(t, "/components/responses/"+name, a)
}

// checkMarks holds the marks of an answer against the headers described.
func (n *node) checkMarks(t *testing.T, a answer) {
	t.Helper()
	for name, component := range map[string]string{
		"Idempotency-Key": "IdempotencyKey", "Idempotency-Status": "IdempotencyStatus", "Idempotency-Expires": "IdempotencyExpires",
		"Idempotent-Replayed": "IdempotentReplayed", "Preference-Applied": "PreferenceApplied",
	} {
		for _, value := range a.header[name] {
			if err := n.keyed.schema(t, "/components/headers/"+component+"/schema").Validate(value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, name := range []string{"Idempotency-Key", "Idempotency-Status", "Idempotency-Expires"} {
		if a.header.Get(name) == "" {
			t.Errorf("%d without %s: %v", a.status, name, a.header)
		}
	}
}
