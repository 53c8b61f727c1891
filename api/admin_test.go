package api_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Tokens of the two operators of a desk.
const (
	adasToken = "ada's token, which may operate"
	evesToken = "eve's token, which may read"
)

// desk is the operator API over an embedded store of its own, with an executor
// that runs nowhere and a record of it in each state.
type desk struct {
	admin    *api.Admin
	store    records.Store
	executor records.ExecutorID
	ids      map[records.State]records.ID
	log      *lines
	path     string                        // of the store's file
	verdict  atomic.Pointer[api.Sight]     // of whoever is asked
	node     atomic.Pointer[takeover.Node] // that answers; nil: one that does not serve
	aloof    atomic.Bool                   // one that cannot have what it is asked for
}

func newDesk(t *testing.T, change ...func(c *api.AdminConfig)) *desk {
	t.Helper()
	d := &desk{path: filepath.Join(t.TempDir(), "probate.db"), ids: make(map[records.State]records.ID), log: &lines{}}
	d.store = openStore(d.path)
	t.Cleanup(func() { _ = d.store.Close() })
	d.executor = d.register(t, "elsewhere")
	for _, state := range []records.State{records.InProgress, records.Finalized, records.Unknown, records.Released} {
		d.ids[state] = d.record(t, "key of "+string(state), state)
	}
	d.verdict.Store(&api.Sight{Verdict: "running"})
	operators, err := api.ParseOperators([]byte(lineFor("operate", "ada", adasToken) + lineFor("read", "eve", evesToken)))
	if err != nil {
		t.Fatal(err)
	}
	c := api.AdminConfig{
		Store: d.store, Node: d, Takeovers: 5, Operators: func() *api.Operators { return operators },
		Ask:    func(context.Context, records.Held) (api.Sight, error) { return *d.verdict.Load(), nil },
		Logger: slog.New(slog.NewTextHandler(d.log, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	d.admin = api.NewAdmin(c)
	return d
}

// Reconcile implements [api.AdminNode].
func (d *desk) Reconcile(ctx context.Context, id records.ID, epoch int64) (takeover.Reconciliation, error) {
	if d.aloof.Load() {
		return takeover.Reconciliation{}, nil
	}
	if n := d.node.Load(); n != nil {
		return n.Reconcile(ctx, id, epoch)
	}
	return takeover.Reconciliation{}, takeover.ErrNotServing
}

// WaitingFor implements [api.AdminNode].
func (d *desk) WaitingFor(records.ID) int { return 3 }

// register adds an executor that runs nowhere.
func (d *desk) register(t *testing.T, slot string) records.ExecutorID {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := d.store.Register(t.Context(), records.Registration{
		ID: records.ExecutorID(records.NewToken()), Slot: slot, URL: "http://192.0.2.1:1", PublicKey: public,
		Policy: records.PolicyProbe, LeaseTTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return x.ID
}

// record makes one of the executor, in a state, for the principal alice whom a
// trusted header names.
func (d *desk) record(t *testing.T, key string, state records.State) records.ID {
	t.Helper()
	principal, err := api.ParsePrincipal("trusted_header:alice")
	if err != nil {
		t.Fatal(err)
	}
	k := records.Key{Realm: "shop", Principal: principal, Key: key}
	got, err := d.store.Reserve(t.Context(), records.Reservation{
		ID: k.ID(), Realm: k.Realm, Key: k.Key, Operation: "order", Resource: "7", By: d.executor, Attempt: records.NewToken(),
	})
	if err != nil {
		t.Fatal(err)
	}
	fence := got.Record.Fence()
	switch state {
	case records.Finalized:
		err = d.store.Finalize(t.Context(), k.ID(), fence, records.Outcome{
			Response: records.Response{Status: 201, Body: []byte("the stored answer")}, Retention: time.Hour,
		})
	case records.Unknown:
		err = d.store.MarkUnknown(t.Context(), k.ID(), fence, time.Hour)
	case records.Released:
		err = d.store.Release(t.Context(), k.ID(), fence)
	case records.InProgress:
	}
	if err != nil {
		t.Fatal(err)
	}
	return k.ID()
}

// stands reads a record and checks its state.
func (d *desk) stands(t *testing.T, id records.ID, want records.State) records.Record {
	t.Helper()
	h, err := d.store.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if h.Record.State != want {
		t.Errorf("record is %s, want %s", h.Record.State, want)
	}
	return h.Record
}

// told is what an operator was answered.
type told struct {
	status int
	header http.Header
	body   string
}

func (d *desk) ask(method, path, body string, authorization ...string) told {
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	for _, a := range authorization {
		r.Header.Add("Authorization", a)
	}
	d.admin.ServeHTTP(w, r)
	return told{w.Code, w.Header(), w.Body.String()}
}

// ada asks something that must succeed, and reads the answer.
func ada[T any](t *testing.T, d *desk, method, path, body string) (v T) {
	t.Helper()
	got := d.ask(method, path, body, "Bearer "+adasToken)
	if got.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// refused checks that ada is told this status and code.
func (d *desk) refused(t *testing.T, method, path, body string, status int, code string) {
	t.Helper()
	got := d.ask(method, path, body, "Bearer "+adasToken)
	if got.status != status || !strings.Contains(got.body, fmt.Sprintf("%q:%q", "code", code)) || got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s %.80s: %d %s, want %d %s", method, path, body, got.status, got.body, status, code)
	}
}

func (d *desk) logged() string {
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	return d.log.b.String()
}

// orderAt is the body of an order about a record as it stands.
func (d *desk) orderAt(t *testing.T, id records.ID, more string) string {
	t.Helper()
	h, err := d.store.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"epoch": %d, "reason": "INC-42"%s}`, h.Record.Epoch, more)
}

// paths are all that the operator API has.
func (d *desk) paths() (read, change []string) {
	record, executor := "/v1/records/"+d.ids[records.Unknown].String(), "/v1/executors/"+d.executor.String()
	return []string{"/v1/records", record, "/v1/executors", executor, "/v1/events"},
		[]string{record + "/release", record + "/resolve", record + "/reconcile", "/v1/principals/erase", executor + "/fence", "/v1/purge"}
}

func TestAdmin(t *testing.T) {
	t.Parallel()

	t.Run("LetsInNobodyWithoutAToken", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		read, change := d.paths()
		first := d.ask(http.MethodGet, "/v1/records", "")
		for _, path := range slices.Concat(read, change, []string{"/v1/records/none", "/v1/nothing"}) {
			for _, authorization := range [][]string{
				nil,
				{""},
				{"Bearer"},
				{"Bearer "},
				{"Bearer guessed"},
				{"Basic " + adasToken},
				{adasToken},
				{"Bearer " + adasToken + "x"},
				{"Bearer " + adasToken[:len(adasToken)-1]},
				{"Bearer " + strings.Fields(lineFor("read", "x", adasToken))[2]},
				{"Bearer " + adasToken, "Bearer " + adasToken},
			} {
				for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
					got := d.ask(method, path, "{}", authorization...)
					if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" || got.body != first.body {
						t.Errorf("%s %s with %q: %d %v %s", method, path, authorization, got.status, got.header, got.body)
					}
				}
			}
		}
		if strings.Contains(d.logged(), adasToken[:10]) || strings.Contains(d.logged(), "guessed") {
			t.Error("a token is in the log")
		}
	})

	t.Run("WaitsForNoBodyForEver", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		for token, arrives := range map[string]bool{"nobody's": false, evesToken: false, adasToken: true} {
			w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/purge", strings.NewReader(`{"reason": "a test"}`))
			r.Header.Set("Authorization", "Bearer "+token)
			d.admin.ServeHTTP(w, r)
			if len(w.deadlines) == 0 || w.deadlines[0].IsZero() {
				t.Fatalf("%s: %d, deadlines %v; want one from the beginning", token, w.Code, w.deadlines)
			}
			if lifted := w.deadlines[len(w.deadlines)-1].IsZero(); lifted != arrives || arrives != (w.Code == http.StatusOK) {
				t.Errorf("%s: %d, deadlines %v", token, w.Code, w.deadlines)
			}
		}
	})

	t.Run("IsNotFoundWithoutATokensFile", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, func(c *api.AdminConfig) { c.Operators = func() *api.Operators { return nil } })
		read, change := d.paths()
		for _, path := range slices.Concat(read, change) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				d.refused(t, method, path, "{}", http.StatusNotFound, "not_found")
			}
		}
	})

	t.Run("LetsWhoMayReadChangeNothing", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		read, change := d.paths()
		for _, path := range read {
			if got := d.ask(http.MethodGet, path, "", "bearer "+evesToken); got.status != http.StatusOK || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		for _, path := range change {
			got := d.ask(http.MethodPost, path, d.orderAt(t, d.ids[records.Unknown], ""), "Bearer "+evesToken)
			if got.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		d.stands(t, d.ids[records.Unknown], records.Unknown)
	})

	t.Run("RefusesWhatItDoesNotHave", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		none := strings.Repeat("0", 64)
		d.refused(t, http.MethodGet, "/v1/nothing", "", 404, "not_found")
		d.refused(t, http.MethodDelete, "/v1/records", "", 405, "method_not_allowed")
		d.refused(t, http.MethodGet, "/v1/records/xyz", "", 400, "request_invalid")
		d.refused(t, http.MethodGet, "/v1/records/"+none, "", 404, "not_found")
		d.refused(t, http.MethodPost, "/v1/records/"+none+"/release", `{"epoch": 1, "reason": "r"}`, 404, "not_found")
		d.refused(t, http.MethodGet, "/v1/executors/00000000-0000-4000-8000-000000000000", "", 404, "not_found")
		for _, query := range []string{
			"reaml=shop", "state=done", "realm=a&realm=b", "older_than=-1m", "older_than=soon", "executor=x", "after=x", "limit=0",
			"limit=1001", "%zz=1",
		} {
			d.refused(t, http.MethodGet, "/v1/records?"+query, "", 400, "request_invalid")
		}
		d.refused(t, http.MethodGet, "/v1/records/"+none+"?verbose=1", "", 400, "request_invalid")
		d.refused(t, http.MethodGet, "/v1/events?after=x", "", 400, "request_invalid")
		d.refused(t, http.MethodGet, "/v1/executors?all=perhaps", "", 400, "request_invalid")
	})

	t.Run("SaysThatTheStoreIsAway", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, func(c *api.AdminConfig) { c.Store = away{c.Store} })
		d.refused(t, http.MethodGet, "/v1/records", "", 503, "store_unavailable")
		d.refused(t, http.MethodGet, "/v1/executors", "", 500, "internal_error")
		if log := d.logged(); !strings.Contains(log, "a defect") {
			t.Errorf("the log does not say why:\n%s", log)
		}
	})
}

// away is a store that cannot be reached, and has a defect.
type away struct{ api.AdminStore }

func (away) List(context.Context, records.Filter) (records.Page, error) {
	return records.Page{}, fmt.Errorf("list: %w", records.ErrUnavailable)
}

func (away) ListExecutors(context.Context, ...records.ExecutorState) ([]records.Executor, error) {
	return nil, errors.New("a defect")
}

// timedWriter notes until when its request has to arrive.
type timedWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

// SetReadDeadline implements what [http.ResponseController] looks for.
func (w *timedWriter) SetReadDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}
