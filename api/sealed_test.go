package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/takeover"
)

// vault is two nodes with keys over one store.
type vault struct {
	nodes   [2]*node
	sealers [2]*sealed.Sealer
	raw     records.Store
	below   *tampered // what the second node's keys stand on
	log     *lines
	refused atomic.Int64 // values that could not be opened
}

// newVault makes a vault whose nodes remember no answers.
func newVault(t *testing.T, open func(t testing.TB) records.Store, ids ...string) *vault {
	t.Helper()
	v := &vault{log: &lines{}, raw: open(t)}
	t.Cleanup(func() { _ = v.raw.Close() })
	v.below = &tampered{Store: open(t)}
	for i, store := range []records.Store{open(t), v.below} {
		v.sealers[i] = sealed.New(sealed.Config{
			Keys: sealKeys(t, ids...), Logger: slog.New(slog.NewTextHandler(v.log, nil)),
			Unsealable: func(sealed.Reason) { v.refused.Add(1) },
		})
		v.nodes[i] = startNode(fmt.Sprintf("vault-%d", i), v.sealers[i].Over(store), func(c *takeover.Config) { c.MemoryBytes = -1 })
		t.Cleanup(v.nodes[i].close)
	}
	return v
}

func (v *vault) via() []api.Coordinator { return []api.Coordinator{v.nodes[0], v.nodes[1]} }

// sealKeys are keys of these ids, always the same ones.
func sealKeys(t testing.TB, ids ...string) sealed.Keys {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		secret := strings.Repeat(id, 32)[:31] + "."
		text.WriteString(id + ":" + base64.StdEncoding.EncodeToString([]byte(secret)) + "\n")
	}
	k, err := sealed.ParseKeys(text.String())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// eachStore runs a rule over both stores.
func eachStore(t *testing.T, rule func(t *testing.T, open func(t testing.TB) records.Store)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "probate.db")
		rule(t, func(testing.TB) records.Store { return openStore(path) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		rule(t, func(t testing.TB) records.Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: "test"})
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}

// tampered is a real store whose bodies somebody has changed.
type tampered struct {
	records.Store
	change atomic.Pointer[func(r records.Record) []byte]
}

func (s *tampered) with(change func(r records.Record) []byte) { s.change.Store(&change) }

func (s *tampered) tamper(r *records.Record) {
	if change := s.change.Load(); change != nil && *change != nil && r.Response != nil {
		changed := *r.Response
		changed.Body = (*change)(*r)
		r.Response = &changed
	}
}

// Reserve finds what was changed.
func (s *tampered) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	got, err := s.Store.Reserve(ctx, r)
	s.tamper(&got.Record)
	return got, err
}

// Load reads what was changed.
func (s *tampered) Load(ctx context.Context, id records.ID) (records.Held, error) {
	h, err := s.Store.Load(ctx, id)
	s.tamper(&h.Record)
	return h, err
}

func TestSealed(t *testing.T) {
	t.Parallel()
	t.Run("NothingButAnOpenableBodyIsReplayed", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, open func(t testing.TB) records.Store) {
			v := newVault(t, open, "a")
			for _, d := range []door{gateway, middleware} {
				v.refusesWhatWasChanged(t, d)
			}
		})
	})
	t.Run("KeysAreRotatedUnderLoad", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, open func(t testing.TB) records.Store) {
			rotates(t, newVault(t, open, "old"))
		})
	})
	t.Run("RedactedHeadersAndSecretBodiesAreNotStored", func(t *testing.T) {
		t.Parallel()
		throughBoth(t, keepsSecrets)
	})
}

func (v *vault) refusesWhatWasChanged(t *testing.T, d door) {
	t.Helper()
	l := creates()
	route := payments(t)
	route.Operation += d.name
	urls := d.open(t, route, l, v.via()...)
	victim := send(t, urls[0], request{key: "victim-" + d.name}).want(t, 201)
	first := send(t, urls[0], request{key: "k-" + d.name}).want(t, 201)
	send(t, urls[1], request{key: "k-" + d.name}).wantReplayOf(t, first)
	all, err := v.raw.List(t.Context(), records.Filter{Operation: &route.Operation, Limit: 10})
	if err != nil || len(all.Records) != 2 {
		t.Fatalf("%d records, %v", len(all.Records), err)
	}
	stored := map[records.ID][]byte{}
	for _, r := range all.Records {
		h, err := v.raw.Load(t.Context(), r.ID)
		if err != nil || bytes.Contains(h.Record.Response.Body, []byte("effect")) {
			t.Fatalf("stored %q, %v", h.Record.Response.Body, err)
		}
		stored[r.ID] = h.Record.Response.Body
	}
	flipped := func(r records.Record) []byte {
		b := bytes.Clone(r.Response.Body)
		b[len(b)-1] ^= 1
		return b
	}
	for _, harm := range []struct {
		name string
		keys []string
		with func(r records.Record) []byte
	}{
		{"altered", []string{"a"}, flipped},
		{"cut short", []string{"a"}, func(r records.Record) []byte { return r.Response.Body[:40] }},
		{"another record's", []string{"a"}, func(r records.Record) []byte { return other(stored, r.ID) }},
		{"of a key that is gone", []string{"b"}, nil},
		{"sealed, and no keys here", nil, nil},
	} {
		v.below.with(harm.with)
		v.sealers[1].Exchange(sealKeys(t, harm.keys...))
		refused := v.refused.Load()
		got := send(t, urls[1], request{key: "k-" + d.name})
		p := got.wantProblem(t, 500, "result_unreadable")
		if ref, _ := p["operation_ref"].(string); len(ref) != 64 || p["retryable"] != false || p["same_key"] != true {
			t.Errorf("%s: problem = %v", harm.name, p)
		}
		if strings.Contains(got.body, "seal\r\n") || strings.Contains(got.body, "effect") {
			t.Errorf("%s: the answer holds a body: %q", harm.name, got.body)
		}
		if n := v.refused.Load() - refused; n != 1 {
			t.Errorf("%s: told %d times", harm.name, n)
		}
		if !strings.Contains(v.log.String(), "level=ERROR") {
			t.Errorf("%s: nothing was logged", harm.name)
		}
	}
	v.below.with(nil)
	v.sealers[1].Exchange(sealKeys(t, "a"))
	send(t, urls[1], request{key: "k-" + d.name}).wantReplayOf(t, first)
	send(t, urls[1], request{key: "victim-" + d.name}).wantReplayOf(t, victim)
	l.want(t, 2)
}

// other is the body of another record.
func other(stored map[records.ID][]byte, than records.ID) []byte {
	for id, body := range stored {
		if id != than {
			return body
		}
	}
	return nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rotates exchanges the key on both nodes, one node after the other, while
// clients work with both: first the new one is added, then it seals, then the
// old one goes.
func rotates(t *testing.T, v *vault) {
	t.Helper()
	l := creates()
	urls := gateway.open(t, payments(t), l, v.via()...)
	var keys atomic.Int64
	var done [2]atomic.Int64 // pairs, of each client
	var failed sync.Map
	stop := make(chan struct{})
	var clients sync.WaitGroup
	load := func(client int) {
		first, second := urls[client], urls[1-client]
		for {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprint("load-", keys.Add(1))
			a, b := trySend(t, first, request{key: key}), trySend(t, second, request{key: key})
			if a.err != nil || b.err != nil || a.status != 201 || b.status != 201 || a.body != b.body {
				failed.Store(key, fmt.Sprint(a, b))
				return
			}
			done[client].Add(1)
		}
	}
	for client := range 2 {
		clients.Go(func() { load(client) })
	}
	served := func() {
		from := [2]int64{done[0].Load(), done[1].Load()}
		await(t, "the load goes on", func() bool {
			over := false
			failed.Range(func(any, any) bool { over = true; return false })
			return over || done[0].Load() >= from[0]+3 && done[1].Load() >= from[1]+3
		})
	}
	served()
	before := send(t, urls[0], request{key: "before"}).want(t, 201)
	for _, step := range [][]string{{"old", "new"}, {"new", "old"}, {"new"}} {
		if len(step) == 1 { // the longest retention has passed: nothing is asked that the old one sealed
			send(t, urls[1], request{key: "before"}).wantReplayOf(t, before)
		}
		for _, s := range v.sealers {
			s.Exchange(sealKeys(t, step...))
			served()
		}
	}
	close(stop)
	clients.Wait()
	failed.Range(func(key, answers any) bool {
		t.Errorf("%v: %v", key, answers)
		return true
	})
	l.want(t, keys.Load()+1)
	send(t, urls[1], request{key: "before"}).wantProblem(t, 500, "result_unreadable") // sealed by the old one: it would have expired
	l.want(t, keys.Load()+1)
}

// keepsSecrets looks into the store for what a route must not keep there.
func keepsSecrets(t *testing.T, d door) {
	t.Helper()
	l := creates()
	answer := l.answer
	l.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Api-Key", "hidden 1")
		w.Header().Add("x-internal", "hidden 2")
		w.Header().Set("X-Kept", "kept")
		answer(w, r)
	}
	routes := make([]api.Route, 2)
	for i := range routes {
		routes[i] = payments(t)
		routes[i].Redact = []string{"x-api-key", "X-INTERNAL"}
		routes[i].Operation += fmt.Sprint(" ", i)
		routes[i].Path = fmt.Sprintf("/%d", i)
		routes[i].Resource = ""
	}
	routes[1].SecretResponse = true
	path := filepath.Join(t.TempDir(), "probate.db")
	n := startNode("secrets", openStore(path))
	t.Cleanup(n.close)
	url := d.openAll(t, routes, l, n)[0]
	raw := openStore(path)
	t.Cleanup(func() { _ = raw.Close() })
	for i := range routes {
		q := request{key: fmt.Sprint("k", i), path: fmt.Sprintf("/%d", i)}
		send(t, url, q).want(t, 201, "X-Api-Key: hidden 1", "X-Internal: hidden 2", "X-Kept: kept")
		again := send(t, url, q)
		if strings.Contains(fmt.Sprint(again), "hidden") {
			t.Errorf("a duplicate got %v", again)
		}
		page, err := raw.List(t.Context(), records.Filter{Operation: &routes[i].Operation, Limit: 1})
		if err != nil || len(page.Records) != 1 {
			t.Fatal(page, err)
		}
		h, err := raw.Load(t.Context(), page.Records[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		stored := h.Record.Response
		names := make([]string, len(stored.Headers))
		for i, x := range stored.Headers {
			names[i] = x.Name
		}
		want := []string{"Content-Type", "Etag", "Location", "X-Kept"}
		if routes[i].SecretResponse {
			want = []string{"Location"}
			again.wantProblem(t, 409, "result_not_replayable")
		} else {
			again.want(t, 201, "X-Kept: kept", "Idempotent-Replayed: true")
		}
		if !slices.Equal(names, want) || (stored.Body == nil) != routes[i].SecretResponse {
			t.Errorf("stored headers %q and %d bytes", names, len(stored.Body))
		}
	}
	l.want(t, 2)
}
