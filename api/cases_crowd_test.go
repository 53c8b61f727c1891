package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// books are what the fleet's effects are entered in. Who asks first is left
// waiting until it has gone, and leaves no entry: it dies before its effect.
type books struct {
	begun          chan struct{} // closed when the first has asked
	asked, entries atomic.Int64
}

func (b *books) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if b.asked.Add(1) == 1 {
		close(b.begun)
		<-r.Context().Done()
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "entry %d", b.entries.Add(1))
}

// clerk is a service in Go that keeps its books elsewhere.
type clerk struct{ books string }

func (c clerk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, c.books, http.NoBody)
	if err != nil {
		panic(err)
	}
	got := exchange(req)
	if got.err != nil {
		panic(got.err)
	}
	w.WriteHeader(got.status)
	_, _ = io.WriteString(w, got.body)
}

// serveBooks puts a node behind the door of this name: the gateway in front of
// the books, or the middleware in front of a clerk.
func serveBooks(door, books string, n *node) (server *httptest.Server, stop func()) {
	route := api.Route{
		Methods: []string{"POST"}, Path: "/orders/{id}/payments", Operation: "enter", Principal: api.Principal{None: true},
		Wait: api.Wait{Default: 2 * time.Minute, Max: 2 * time.Minute},
	}
	config := api.Config{Coordinator: n}
	if door == gateway.name {
		route.Upstream, route.Reconcile.Reexecute = books, true
		config.Routes = []api.Route{route}
	}
	a, err := api.New(config)
	if err != nil {
		panic(err)
	}
	handler := http.Handler(a)
	if door == middleware.name {
		route.Reconciler = takeover.Reexecute
		wrap, err := a.Middleware(route)
		if err != nil {
			panic(err)
		}
		router := chi.NewRouter()
		router.With(wrap).Handle(route.Path, clerk{books})
		handler = router
	}
	// A crowd on a node comes over one connection.
	server = httptest.NewUnstartedServer(handler)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
	server.Start()
	return server, func() {
		server.Close()
		_ = a.Close()
	}
}

// childThatIsKilled serves until then. Args: the store's file, the door, the
// URL of the books.
func childThatIsKilled(args []string) int {
	n := startNode("owner", openStore(args[0]))
	defer n.close()
	server, stop := serveBooks(args[1], args[2], n)
	defer stop()
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// witness counts what a node asks of others and of the store.
type witness struct {
	takeover.NoEvents
	*node
	store  *recordstest.Faulty
	probes atomic.Int64
	url    string
	client *http.Transport
}

func (w *witness) Probed(records.Record, probe.Verdict) { w.probes.Add(1) }

func newWitness(t *testing.T, slot, file, door, books string) *witness {
	w := &witness{store: recordstest.NewFaulty(openStore(file)), client: &http.Transport{DisableCompression: true, Protocols: &http.Protocols{}}}
	w.client.Protocols.SetUnencryptedHTTP2(true)
	w.node = startNode(slot, w.store, func(c *takeover.Config) {
		c.Events = w
		c.SettleRead = 10 * time.Minute // what is read as time passes is not what is counted
	})
	t.Cleanup(w.close)
	server, stop := serveBooks(door, books, w.node)
	t.Cleanup(stop)
	t.Cleanup(w.client.CloseIdleConnections)
	w.url = server.URL
	return w
}

// gather has so many duplicates wait here.
func (w *witness) gather(t *testing.T, count int) <-chan response {
	answers := make(chan response, count)
	for i := range count {
		go func() {
			req, err := request{key: "k", body: "{}"}.at(t, w.url)
			if err != nil {
				answers <- response{err: err}
				return
			}
			answers <- exchangeOver(w.client, req)
		}()
		if i == 0 { // the connection stands before the others come
			await(t, "the first waits", func() bool { return w.Waiting() == 1 })
		}
	}
	await(t, "all wait", func() bool { return w.Waiting() == count })
	return answers
}

// toll is what a record has cost a node.
type toll struct {
	probes     int64
	statements int
}

func (w *witness) toll() (c toll) {
	c.probes = w.probes.Load()
	for _, call := range []recordstest.Call{
		recordstest.Reserve, recordstest.Load, recordstest.LoadExecutor, recordstest.TakeOver, recordstest.Fence, recordstest.Finalize,
	} {
		c.statements += w.store.Calls(call)
	}
	return c
}

// outlive kills a process that owns a key while so many duplicates wait on
// each of two other nodes, and returns what that has cost the two.
func outlive(t *testing.T, d door, each int) [2]toll {
	t.Helper()
	b := &books{begun: make(chan struct{})}
	ledger := httptest.NewServer(b)
	t.Cleanup(ledger.Close)
	file := filepath.Join(t.TempDir(), "probate.db")
	two := [2]*witness{newWitness(t, "one", file, d.name, ledger.URL), newWitness(t, "two", file, d.name, ledger.URL)}
	owner, url, _ := startChild(t, "child-that-is-killed", file, d.name, ledger.URL)

	first := background(t, url, request{key: "k", body: "{}"})
	select {
	case <-b.begun:
	case got := <-first:
		t.Fatalf("the owner does not work, and answers %v", got)
	}
	crowds := [2]<-chan response{two[0].gather(t, each), two[1].gather(t, each)}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := owner.Wait(); err == nil {
		t.Error("the owner ended well")
	}
	if got := <-first; got.err == nil {
		t.Errorf("a dead process has answered: %v", got)
	}

	tookOver := 0
	for _, crowd := range crowds {
		for range each {
			got := (<-crowd).want(t, http.StatusCreated)
			status, replayed := got.header.Get("Idempotency-Status"), got.header.Get("Idempotent-Replayed")
			switch {
			case got.body != "entry 1":
				t.Errorf("body = %q", got.body)
			case status == "taken-over" && replayed == "":
				tookOver++
			case status != "waited" || replayed != "true":
				t.Errorf("status %q, replayed %q", status, replayed)
			}
		}
	}
	if tookOver != 1 {
		t.Errorf("%d took over", tookOver)
	}
	if asked, entries := b.asked.Load(), b.entries.Load(); asked != 2 || entries != 1 {
		t.Errorf("the books were asked %d times and have %d entries, want 2 (by the owner, by its successor) and 1", asked, entries)
	}
	return [2]toll{two[0].toll(), two[1].toll()}
}

func caseK51(t *testing.T, d door) {
	few, many := outlive(t, d, 5), outlive(t, d, 500)
	t.Logf("of 10 duplicates: %+v; of 1,000: %+v", few, many)
	// Either node may be the one that takes over, and how often a dead node is
	// probed depends on the machine's lags, but nothing on how many wait.
	const chance = 25
	for i := range few {
		if few[i].probes == 0 || few[i].statements == 0 {
			t.Errorf("on node %d 10 duplicates cost %+v", i, few[i])
		}
		if many[i].probes > few[i].probes+chance || many[i].statements > few[i].statements+chance {
			t.Errorf("on node %d 10 duplicates cost %+v, 1,000 cost %+v", i, few[i], many[i])
		}
	}
}
