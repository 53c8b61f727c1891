package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/api"
)

// door is one way for clients to reach a service through this package.
type door struct {
	name string
	// openAll puts the service behind the routes on each coordinator and
	// returns where each can be reached.
	openAll func(t testing.TB, routes []api.Route, service http.Handler, via ...api.Coordinator) []string
}

var (
	gateway    = door{"Gateway", openGateway}
	middleware = door{"Middleware", openMiddleware}
)

// throughBoth runs a scenario through the gateway and through the middleware.
func throughBoth(t *testing.T, scenario func(t *testing.T, d door)) {
	t.Helper()
	for _, d := range []door{gateway, middleware} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, d)
		})
	}
}

func openGateway(t testing.TB, routes []api.Route, service http.Handler, via ...api.Coordinator) []string {
	upstream := serve(service)
	t.Cleanup(upstream.Close)
	routes = slices.Clone(routes)
	for i := range routes {
		routes[i].Upstream = upstream.URL
	}
	return openRoutes(t, routes, upstream.URL, via...)
}

// openRoutes starts a gateway on each coordinator.
func openRoutes(t testing.TB, routes []api.Route, passThrough string, via ...api.Coordinator) []string {
	urls := make([]string, len(via))
	for i, c := range via {
		a, err := api.New(api.Config{Coordinator: c, Routes: routes, PassThrough: passThrough, Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(a)
		t.Cleanup(func() {
			server.Close()
			_ = a.Close()
		})
		urls[i] = server.URL
	}
	return urls
}

func openMiddleware(t testing.TB, routes []api.Route, service http.Handler, via ...api.Coordinator) []string {
	urls := make([]string, len(via))
	for i, c := range via {
		a, err := api.New(api.Config{Coordinator: c, Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		router := chi.NewRouter()
		for _, route := range routes {
			wrap, err := a.Middleware(route)
			if err != nil {
				t.Fatal(err)
			}
			router.With(wrap).Handle(route.Path, service)
		}
		router.NotFound(service.ServeHTTP)
		server := httptest.NewServer(router)
		t.Cleanup(func() {
			server.Close()
			_ = a.Close()
		})
		urls[i] = server.URL
	}
	return urls
}

// serve is httptest.NewServer for handlers that panic on purpose.
func serve(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	return server
}

// open opens the door for one route.
func (d door) open(t testing.TB, route api.Route, service http.Handler, via ...api.Coordinator) []string {
	return d.openAll(t, []api.Route{route}, service, via...)
}

// node0 opens the door on one node of the fleet.
func (d door) node0(t testing.TB, route api.Route, service http.Handler) string {
	return d.open(t, route, service, fleet()[0])[0]
}

// bothNodes opens it on two.
func (d door) bothNodes(t testing.TB, route api.Route, service http.Handler) []string {
	return d.open(t, route, service, fleet()[0], fleet()[1])
}

// payments is a route like many, with an operation and a realm of the test's
// own.
func payments(t testing.TB) api.Route {
	return api.Route{
		Methods: []string{"POST"}, Path: "/orders/{id}/payments", Operation: "pay " + t.Name(), Resource: "{id}",
		Realm:     realmOf(t),
		Principal: api.Principal{Headers: []string{"Authorization"}},
	}
}

// realmOf is a realm of the test's own, also when it runs twice.
func realmOf(t testing.TB) api.Realm {
	n, _ := realms.LoadOrStore(t, realmCount.Add(1))
	return api.Realm{Constant: fmt.Sprintf("%s %d", t.Name(), n)}
}

var (
	realms     sync.Map
	realmCount atomic.Int64
)

// dial connects as no HTTP client would.
func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// say writes to a connection whose other end may have gone.
func say(conn io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(conn, format, args...) }

// listen listens on a free port.
func listen() net.Listener {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return listener
}

const paymentPath = "/orders/7/payments"

// ledger is a service that counts its effects.
type ledger struct {
	effects atomic.Int64
	answer  func(w http.ResponseWriter, r *http.Request)
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		l.effects.Add(1)
	}
	l.answer(w, r)
}

func (l *ledger) want(t testing.TB, effects int64) {
	t.Helper()
	if got := l.effects.Load(); got != effects {
		t.Errorf("the service ran %d times, want %d", got, effects)
	}
}

// creates answers 201 with a body of its own for each effect.
func creates() *ledger {
	l := &ledger{}
	l.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/1")
		w.Header().Set("ETag", `"v1"`)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"effect": l.effects.Load()})
	}
	return l
}

// request is what a test sends.
type request struct {
	method, path, key, body, token string
	header                         http.Header
	ctx                            context.Context
}

// response is what it got.
type response struct {
	status int
	header http.Header
	body   string
	err    error
}

// send sends over a connection of its own.
func send(t testing.TB, url string, q request) response {
	t.Helper()
	got := trySend(t, url, q)
	if got.err != nil {
		t.Fatalf("%s %s: %v", q.method, q.path, got.err)
	}
	return got
}

// trySend is send for a connection that may break.
func trySend(t testing.TB, url string, q request) response {
	req, err := q.at(t, url)
	if err != nil {
		return response{err: err}
	}
	return exchange(req)
}

// at is the request to a node.
func (q request) at(t testing.TB, url string) (*http.Request, error) {
	method, path, ctx := q.method, q.path, q.ctx
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = paymentPath
	}
	if ctx == nil {
		ctx = t.Context()
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.header != nil {
		req.Header = q.header.Clone()
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	if q.token == "" {
		q.token = "alice"
	}
	req.Header.Set("Authorization", "Bearer "+q.token)
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// exchange sends over a fresh connection.
func exchange(req *http.Request) response {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	defer transport.CloseIdleConnections()
	return exchangeOver(transport, req)
}

func exchangeOver(transport *http.Transport, req *http.Request) response {
	req.GetBody = nil // the test's own client repeats nothing
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return response{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

func (r response) want(t testing.TB, status int, marks ...string) response {
	t.Helper()
	if r.err != nil || r.status != status {
		t.Fatalf("status %d, %v; want %d\n%v\n%s", r.status, r.err, status, r.header, r.body)
	}
	for _, m := range marks {
		name, value, _ := strings.Cut(m, ": ")
		if got := r.header.Get(name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
	return r
}

// wantProblem checks a problem document.
func (r response) wantProblem(t testing.TB, status int, code string) map[string]any {
	t.Helper()
	r.want(t, status, "Content-Type: application/problem+json", "Cache-Control: no-store")
	var d map[string]any
	if err := json.Unmarshal([]byte(r.body), &d); err != nil {
		t.Fatalf("problem: %v\n%s", err, r.body)
	}
	if d["code"] != code || d["status"] != float64(status) {
		t.Fatalf("problem = %v, want %d %s", d, status, code)
	}
	return d
}

// wantReplayOf checks that r is first again, byte for byte.
func (r response) wantReplayOf(t testing.TB, first response) {
	t.Helper()
	r.want(t, first.status, "Idempotent-Replayed: true")
	if r.body != first.body {
		t.Errorf("body = %q, want %q", r.body, first.body)
	}
	for _, name := range []string{"Content-Type", "Location", "Etag", "Content-Length"} {
		if got, want := r.header.Values(name), first.header.Values(name); !equalStrings(got, want) {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
}

func equalStrings(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }
