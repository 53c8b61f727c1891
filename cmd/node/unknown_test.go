//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// dubious is a service that breaks off after it has done what it was asked,
// until it is repaired, and that answers reconcilers as it is told.
type dubious struct {
	*httptest.Server
	repaired atomic.Bool
	finding  atomic.Pointer[string]

	mu       sync.Mutex
	executed map[string]int
}

func newDubious(t *testing.T) *dubious {
	t.Helper()
	s := &dubious{executed: map[string]int{}}
	s.tell(`{"finding": "undecidable"}`)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *dubious) tell(finding string) { s.finding.Store(&finding) }

func (s *dubious) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/reconcile" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, *s.finding.Load()) // the node may be gone
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.executed[key]++
	s.mu.Unlock()
	if !s.repaired.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "executed "+key)
}

func (s *dubious) times(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed[key]
}

// operatorsFile makes a tokens file with ada, who may operate, and eve, who may
// read.
func operatorsFile(t *testing.T) (file, ada, eve string) {
	t.Helper()
	a, e := okJSON(t, "operators", "token", "ada", "--role", "operate"), okJSON(t, "operators", "token", "eve")
	file = filepath.Join(t.TempDir(), "operators")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s\n%s\n", a["line"], e["line"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, a["token"].(string), e["token"].(string)
}

// configureDubious has a route with a reconciler, and one whose unknown records
// are soon forgotten.
func configureDubious(t *testing.T, store, upstream, operators string) (file string) {
	t.Helper()
	text := "store: " + store + "\nlisten: 127.0.0.1:0\ninternal: {listen: 127.0.0.1:0, allow: [127.0.0.0/8]}\noperators: {tokens_file: " + operators + "}\n" +
		fmt.Sprintf(quick, ", grace: 1s") + fmt.Sprintf(`routes:
  - match: {methods: [POST], path: /orders}
    upstream: %[1]s
    operation: order
    principal: {trusted_header: X-User}
    reconcile: {url: "%[1]s/reconcile"}
  - match: {methods: [POST], path: /brief}
    upstream: %[1]s
    operation: brief
    principal: {trusted_header: X-User}
    unknown_retention: 1s
`, upstream)
	file = filepath.Join(t.TempDir(), "probate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pay sends alice's request and returns what she was told; of a problem, its
// code and operation_ref.
func pay(ctx context.Context, t *testing.T, client *http.Client, base, path, key string) (a answer, code, ref string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-User", "alice")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Code string
		Ref  string `json:"operation_ref"`
	}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &p); err != nil {
			t.Fatal(err)
		}
	}
	return answer{status: resp.StatusCode, how: resp.Header.Get("Idempotency-Status"), body: string(body)}, p.Code, p.Ref
}

// desk is a node with a dubious service behind it, and the two ways in which
// an operator gets at its records.
type desk struct {
	*dubious
	node      *embedded
	client    *http.Client
	ada, eve  string // tokens
	operators string // the tokens file

	straight, through []string // flags of a command
}

func newDesk(t *testing.T, at string) *desk {
	t.Helper()
	d := &desk{dubious: newDubious(t), client: browser(t)}
	d.operators, d.ada, d.eve = operatorsFile(t)
	d.node = startEmbedded(t, "--config", configureDubious(t, at, d.URL, d.operators))
	ready(t, d.client, d.node.public)
	d.straight = []string{"--store", at, "--internal.allow", "127.0.0.0/8"}
	d.through = []string{"--node", d.node.internal, "--token", d.ada}
	return d
}

// unknown makes a record of which nobody can tell what came of it, or finds the
// one that was made: who asks first is told what the service said, and who asks
// again what to quote.
func (d *desk) unknown(t *testing.T, path, key string) (ref string) {
	t.Helper()
	_, _, _ = pay(t.Context(), t, d.client, d.node.public, path, key)
	a, code, ref := pay(t.Context(), t, d.client, d.node.public, path, key)
	if a.status != http.StatusConflict || code != "outcome_unknown" || len(ref) != 64 {
		t.Fatalf("%s: %+v", key, a)
	}
	return ref
}

// replays checks what a duplicate is told, and how often the service executed.
func (d *desk) replays(t *testing.T, key, body string) {
	t.Helper()
	if a, _, _ := pay(t.Context(), t, d.client, d.node.public, "/orders", key); a.status != http.StatusCreated || a.how != "replayed" || a.body != body {
		t.Errorf("%s: %+v", key, a)
	}
	if n := d.times(key); n != 1 {
		t.Errorf("%s was executed %d times", key, n)
	}
}

// with adds flags to a command.
func with(flags []string, args ...string) []string { return append(args, flags...) }

// TestUnknown: a record of which nobody can tell what came of it is listed,
// counted, and quoted by clients, and there are three ways out.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for kind, store := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, store(t))
			first := d.unknown(t, "/orders", "k1")
			ways := map[string][]string{"StraightOnTheStore": with(d.straight, "--operator", "ada"), "ThroughANode": d.through}

			t.Run("IsListedCountedAndQuoted", func(t *testing.T) {
				if again := d.unknown(t, "/orders", "k1"); again != first {
					t.Errorf("a duplicate is told %s, the first was told %s", again, first)
				}
				for name, way := range map[string][]string{"straight": d.straight, "through": d.through} {
					list := okJSON(t, with(way, "records", "list", "--state", "unknown")...)["records"].([]any)
					if len(list) != 1 || list[0].(map[string]any)["record"] != first {
						t.Errorf("%s: listed %v", name, list)
					}
					shown := okJSON(t, with(way, "records", "show", first)...)
					if text := fmt.Sprint(shown["explanation"]); !strings.Contains(text, "nobody can tell") || !strings.Contains(text, "records resolve") {
						t.Errorf("%s: %v", name, shown)
					}
					if _, told := shown["waiters"]; told != (name == "through") {
						t.Errorf("%s: how many wait is told: %v", name, told)
					}
				}
				await(t, "it is counted", func() bool {
					_, text := get(t.Context(), d.client, d.node.internal+"/metrics")
					return strings.Contains(text, "probate_unknown_records 1")
				})
			})

			t.Run("IsResolvedByALaterReconcile", func(t *testing.T) {
				command := with(d.through, "records", "reconcile", first, "--reason", "INC-1")
				if v := okJSON(t, command...); v["finding"] != "undecidable" || stateIn(v["now"]) != "unknown" {
					t.Errorf("while the service cannot tell: %v", v)
				}
				d.tell(`{"finding": "applied", "response": {"status": 201, "body": "found"}}`)
				if out := ok(t, command...); !strings.Contains(out, "found: applied") || !strings.Contains(out, "by ada: found applied: INC-1") {
					t.Errorf("%s", out)
				}
				d.replays(t, "k1", "found")
				if r := invoke(t, nil, command...); r.code != exitRefused || !strings.Contains(r.err, "finalized") {
					t.Errorf("again: %+v", r)
				}
				d.tell(`{"finding": "undecidable"}`)
			})

			for name, way := range ways {
				t.Run("IsResolvedByAnOperator"+name, func(t *testing.T) {
					key := "resolved-" + name
					ref := d.unknown(t, "/orders", key)
					command := with(way, "records", "resolve", ref, "--reason", "INC-2", "--status", "201", "--header", "X-By: hand", "--body", "by hand")
					v := okJSON(t, command...)
					if stateIn(v) != "finalized" || !notedBy(v, "resolved", "ada", "INC-2") {
						t.Errorf("%v", v)
					}
					d.replays(t, key, "by hand")
					command[len(command)-len(way)-1] = "by another hand"
					if r := invoke(t, nil, command...); r.code != exitRefused {
						t.Errorf("what is finalized: %+v", r)
					}
					d.replays(t, key, "by hand")
				})

				t.Run("IsReleasedByAnOperator"+name, func(t *testing.T) {
					key := "released-" + name
					ref := d.unknown(t, "/orders", key)
					stale := with(way, "records", "release", ref, "--reason", "INC-3", "--epoch", "7")
					if r := invoke(t, nil, stale...); r.code != exitRefused {
						t.Errorf("at another epoch: %+v", r)
					}
					v := okJSON(t, with(way, "records", "release", ref, "--reason", "INC-3")...)
					if stateIn(v) != "released" || !notedBy(v, "released", "ada", "INC-3") {
						t.Errorf("%v", v)
					}
					d.repaired.Store(true)
					defer d.repaired.Store(false)
					a, _, _ := pay(t.Context(), t, d.client, d.node.public, "/orders", key)
					if a.status != http.StatusCreated || a.how != "executed" || d.times(key) != 2 {
						t.Errorf("%+v, executed %d times", a, d.times(key))
					}
				})
			}

			t.Run("ExpiresAtLast", func(t *testing.T) {
				d.unknown(t, "/brief", "brief")
				d.repaired.Store(true)
				defer d.repaired.Store(false)
				await(t, "the key is free", func() bool {
					a, code, _ := pay(t.Context(), t, d.client, d.node.public, "/brief", "brief")
					if a.status != http.StatusCreated && code != "outcome_unknown" {
						t.Fatalf("%+v", a)
					}
					return a.how == "executed"
				})
				if n := d.times("brief"); n != 2 {
					t.Errorf("executed %d times", n)
				}
			})

			t.Run("IsForgottenWhenItsPrincipalIsErased", func(t *testing.T) {
				erase := []string{"records", "erase", "--realm", "", "--principal", "trusted_header:alice", "--reason", "DSR-1"}
				if v := okJSON(t, with(d.through, erase...)...); v["erased"].(float64) < 5 || v["in_progress"] != 0.0 {
					t.Errorf("through a node: %v", v)
				}
				if v := okJSON(t, with(d.straight, erase...)...); v["erased"] != 0.0 {
					t.Errorf("straight on the store, once more: %v", v)
				}
				if list := okJSON(t, with(d.straight, "records", "list", "--key", "k1")...)["records"].([]any); len(list) != 0 {
					t.Errorf("its key is still there: %v", list)
				}
				await(t, "the node has forgotten the response, too", func() bool {
					a, code, _ := pay(t.Context(), t, d.client, d.node.public, "/orders", "k1")
					return a.status == http.StatusConflict && code == "result_not_replayable"
				})
				if n := d.times("k1"); n != 1 {
					t.Errorf("executed %d times", n)
				}
			})
		})
	}
}

// TestReconcileOfAKilledNode: an operator need not wait for a duplicate or a
// sweep. The dead node is found out and fenced, and its record reconciled.
func TestReconcileOfAKilledNode(t *testing.T) {
	t.Parallel()
	for kind, store := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := store(t)
			s, client := newService(t), browser(t)
			operators, ada, _ := operatorsFile(t)
			known := "operators: {tokens_file: " + operators + "}"
			a := startProgram(t, "--config", configure(t, at, s.URL, known))
			b := startProgram(t, "--config", configure(t, at, s.URL, known))
			ready(t, client, a.public)
			ready(t, client, b.public)
			first := make(chan answer, 1)
			go func() { first <- order(context.WithoutCancel(t.Context()), client, a.public, "k", "hold") }()
			<-s.begun
			through := []string{"--node", b.internal, "--token", ada}
			held := okJSON(t, with(through, "records", "list", "--key", "k")...)["records"].([]any)[0].(map[string]any)["record"].(string)

			reconcile := with(through, "records", "reconcile", held, "--reason", "INC-4")
			if r := invoke(t, nil, reconcile...); r.code != exitRefused || !strings.Contains(r.out, "has signed that it is running it") {
				t.Errorf("while its owner lives: %+v", r)
			}
			a.signal(t, syscall.SIGKILL)
			<-first
			// Until its fence the dead node may be doubted, but not be overtaken.
			await(t, "it is reconciled", func() bool {
				r := invoke(t, nil, with([]string{"-o", "json"}, reconcile...)...)
				return r.code == exitDone && strings.Contains(r.out, `"finding": "not_applied"`)
			})
			shown := okJSON(t, with(through, "records", "show", held)...)
			if stateIn(shown) != "released" || s.times("k") != 1 {
				t.Errorf("executed %d times: %v", s.times("k"), shown)
			}
			close(s.release)
			if got := order(t.Context(), client, b.public, "k", "hold"); got.status != http.StatusCreated || got.how != "executed" {
				t.Errorf("the next request: %+v", got)
			}
		})
	}
}

// stateIn is the state in a report about a record.
func stateIn(report any) any {
	return report.(map[string]any)["record"].(map[string]any)["state"]
}

// notedBy reports whether the last event of a report says this.
func notedBy(report map[string]any, kind, actor, reason string) bool {
	events := report["events"].([]any)
	if len(events) == 0 {
		return false
	}
	last := events[len(events)-1].(map[string]any)
	return last["kind"] == kind && last["actor"] == actor && last["reason"] == reason
}
