package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/api"
)

type contextT = context.Context

// lossy is a service that takes the effect of every POST and then drops the
// connection. GET /warm is answered, so that a kept connection is there.
type lossy struct {
	url         string
	effects     atomic.Int64
	connections atomic.Int64
	headers     atomic.Pointer[http.Header]
	bytesOfBody atomic.Int64
}

func newLossy(t *testing.T) *lossy {
	listener := listen()
	l := &lossy{url: "http://" + listener.Addr().String()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.connections.Add(1)
			l.serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return l
}

func (l *lossy) serve(conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, req.Body)
		if req.Method != http.MethodPost {
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwarm")
			continue
		}
		l.bytesOfBody.Store(n)
		l.headers.Store(&req.Header)
		l.effects.Add(1)
		return
	}
}

func caseK00(t *testing.T) {
	const key = "k00"
	chunked := func(t *testing.T, url, body string) response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+paymentPath, struct{ io.Reader }{strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Idempotency-Key": {key}, "Authorization": {"Bearer alice"}}
		return exchange(req)
	}
	for name, c := range map[string]struct {
		size int64
		send func(t *testing.T, url string) response
	}{
		"EmptyBody":    {0, func(t *testing.T, url string) response { return send(t, url, request{key: key}) }},
		"BufferedBody": {6, func(t *testing.T, url string) response { return send(t, url, request{key: key, body: "abcdef"}) }},
		"StreamedBody": {4, func(t *testing.T, url string) response { return chunked(t, url, "four") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := newLossy(t)
			route := payments(t)
			route.Upstream = upstream.url
			url := openRoutes(t, []api.Route{route}, upstream.url, fleet()[0])[0]
			send(t, url, request{method: "GET", path: "/warm"}).want(t, 200)
			c.send(t, url).wantProblem(t, 409, "outcome_unknown")
			c.send(t, url).wantProblem(t, 409, "outcome_unknown")
			if n, conns := upstream.effects.Load(), upstream.connections.Load(); n != 1 || conns != 1 {
				t.Errorf("%d effects over %d connections, want 1 over 1", n, conns)
			}
			if n := upstream.bytesOfBody.Load(); n != c.size {
				t.Errorf("the service read %d bytes, want %d", n, c.size)
			}
			h := *upstream.headers.Load()
			if h.Get("Idempotency-Key") != key || h.Get("Idempotency-Epoch") == "" || len(h.Get("Idempotency-Operation")) != 64 {
				t.Errorf("headers upstream = %v", h)
			}
		})
	}
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		t.Run("NotRecorded/"+header, func(t *testing.T) {
			t.Parallel()
			upstream := newLossy(t)
			url := openRoutes(t, nil, upstream.url, fleet()[0])[0]
			send(t, url, request{method: "GET", path: "/warm"}).want(t, 200)
			got := send(t, url, request{path: "/elsewhere", header: http.Header{header: {key}, "Idempotency-Epoch": {"9"}}})
			got.wantProblem(t, 502, "upstream_failed")
			if n, conns := upstream.effects.Load(), upstream.connections.Load(); n != 1 || conns != 1 {
				t.Errorf("%d effects over %d connections, want 1 over 1", n, conns)
			}
			if h := *upstream.headers.Load(); h.Get("Idempotency-Epoch") != "" {
				t.Error("a client has said under which fence it comes")
			}
		})
	}
}

// registry answers a reconcile URL.
func registry(t testing.TB, statement *atomic.Pointer[string]) (url string, questions *atomic.Pointer[api.Question]) {
	questions = &atomic.Pointer[api.Question]{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q api.Question
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		questions.Store(&q)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, *statement.Load())
	}))
	t.Cleanup(server.Close)
	return server.URL, questions
}

func caseK08(t *testing.T, d door) {
	fails := func(panics bool) *ledger {
		return &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "the disk is full")
			if panics {
				panic("and so is the cup")
			}
		}}
	}
	route := func(what string) api.Route {
		r := payments(t)
		r.Operation += " " + what
		return r
	}
	t.Run("NobodyKnows", func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			l := fails(panics)
			url := d.node0(t, route(fmt.Sprint("unknown", panics)), l)
			q := request{key: fmt.Sprint("k", panics)}
			if first := send(t, url, q); panics {
				first.wantProblem(t, 409, "outcome_unknown")
			} else if first.want(t, 500, "Idempotency-Status: executed", "Idempotency-Expires: "); first.body != "the disk is full" {
				t.Errorf("body = %q", first.body)
			}
			p := send(t, url, q).wantProblem(t, 409, "outcome_unknown")
			if p["same_key"] != true || p["retryable"] != false || len(p["operation_ref"].(string)) != 64 {
				t.Errorf("problem = %v", p)
			}
			l.want(t, 1)
		}
	})
	t.Run("ReconcilerKnows", func(t *testing.T) {
		var statement atomic.Pointer[string]
		r := route("reconciled")
		var questions *atomic.Pointer[api.Question]
		r.Reconcile.URL, questions = registry(t, &statement)
		l := fails(false)
		url := d.node0(t, r, l)

		applied := `{"finding":"applied","response":{"status":201,"headers":{"Content-Type":["text/plain"],"Set-Cookie":["no"]},"body":"paid"}}`
		statement.Store(&applied)
		got := send(t, url, request{key: "applied"}).want(t, 201, "Idempotency-Status: reconciled", "Idempotent-Replayed: ", "Content-Type: text/plain", "Set-Cookie: ")
		if got.body != "paid" {
			t.Errorf("body = %q", got.body)
		}
		send(t, url, request{key: "applied"}).wantReplayOf(t, got)
		l.want(t, 1)
		q := questions.Load()
		if q.Key != "applied" || q.Resource != "7" || q.Operation != r.Operation || q.Epoch == 0 || len(q.OperationRef) != 64 || len(q.Fingerprint) != 64 || len(q.PreviousExecutor) != 36 {
			t.Errorf("question = %+v", q)
		}

		notApplied := `{"finding":"not_applied"}`
		statement.Store(&notApplied)
		for range 2 {
			send(t, url, request{key: "not"}).want(t, 500, "Idempotency-Status: executed")
		}
		l.want(t, 3)

		undecidable := `{"finding":"undecidable"}`
		statement.Store(&undecidable)
		send(t, url, request{key: "undecidable"}).want(t, 500)
		send(t, url, request{key: "undecidable"}).wantProblem(t, 409, "outcome_unknown")
		l.want(t, 4)
	})
	t.Run("Stored", func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			l := fails(panics)
			r := route(fmt.Sprint("stored", panics))
			r.OnServerError = api.ServerErrorStore
			url := d.node0(t, r, l)
			first := send(t, url, request{key: fmt.Sprint("s", panics)})
			if first.status < 500 {
				t.Errorf("status %d", first.status)
			}
			send(t, url, request{key: fmt.Sprint("s", panics)}).wantReplayOf(t, first)
			l.want(t, 1)
		}
	})
	t.Run("Released", func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			l := fails(panics)
			r := route(fmt.Sprint("released", panics))
			r.OnServerError = api.ServerErrorRelease
			url := d.node0(t, r, l)
			for range 2 {
				if got := send(t, url, request{key: fmt.Sprint("r", panics)}); got.status != 500 && got.status != 502 {
					t.Errorf("status %d", got.status)
				}
			}
			l.want(t, 2)
		}
	})
}

func caseK09(t *testing.T, d door) {
	for name, end := range map[string]func(){
		"abort":  func() { panic(http.ErrAbortHandler) },
		"goexit": runtime.Goexit,
	} {
		if d.name == gateway.name && name == "goexit" {
			continue // the service's server would not notice: its connection stays open
		}
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			end()
		}}
		r := payments(t)
		r.Operation += " " + name
		url := d.node0(t, r, l)
		first := trySend(t, url, request{key: name})
		if d.name == middleware.name && name == "abort" {
			if first.err == nil {
				t.Errorf("an aborted response came to its end: %v", first)
			}
		} else {
			first.wantProblem(t, 409, "outcome_unknown")
		}
		send(t, url, request{key: name}).wantProblem(t, 409, "outcome_unknown")
		l.want(t, 1)
	}
	l := &ledger{answer: func(http.ResponseWriter, *http.Request) {}}
	r := payments(t)
	r.Operation += " silent"
	url := d.node0(t, r, l)
	first := send(t, url, request{key: "silent"}).want(t, 200, "Content-Length: 0", "Content-Type: ")
	send(t, url, request{key: "silent"}).wantReplayOf(t, first)
	l.want(t, 1)
}

func caseK10(t *testing.T, d door) {
	begun, finish := make(chan struct{}), make(chan struct{})
	var cancelled atomic.Bool
	l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		cancelled.Store(r.Context().Err() != nil)
		_, _ = io.WriteString(w, "done")
	}}
	urls := d.bothNodes(t, payments(t), l)
	ctx, hangUp := context.WithCancel(t.Context())
	owner := background(t, urls[0], request{key: "k", ctx: ctx})
	<-begun
	hangUp()
	if got := <-owner; got.err == nil {
		t.Fatalf("got %v after hanging up", got)
	}
	for _, url := range urls { // waiters come and go
		waiting, leave := context.WithCancel(t.Context())
		waiter := background(t, url, request{key: "k", ctx: waiting})
		send(t, url, request{key: "k", header: http.Header{"Prefer": {"wait=0"}}}).wantProblem(t, 409, "operation_in_progress")
		leave()
		<-waiter
	}
	waiter := background(t, urls[1], request{key: "k"})
	close(finish)
	got := (<-waiter).want(t, 200, "Idempotent-Replayed: true")
	if got.body != "done" || cancelled.Load() {
		t.Errorf("body = %q, cancelled: %t", got.body, cancelled.Load())
	}
	send(t, urls[0], request{key: "k"}).want(t, 200, "Idempotent-Replayed: true")
	l.want(t, 1)
}

func caseK11(t *testing.T, d door) {
	begun, finish := make(chan struct{}), make(chan struct{})
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		w.WriteHeader(http.StatusNoContent)
	}}
	r := payments(t)
	r.Profile = api.ProfileIceberg
	urls := d.bothNodes(t, r, l)
	const key = "017f22e2-79b0-7cc3-98c4-dc0c0c073911"
	first := background(t, urls[0], request{key: key})
	<-begun
	for _, url := range urls {
		got := send(t, url, request{key: key, header: http.Header{"Prefer": {"wait=0"}}}).want(t, 503, "Retry-After: 1", "Content-Type: application/json")
		if !strings.Contains(got.body, `"code":503`) {
			t.Errorf("body = %s", got.body)
		}
	}
	close(finish)
	(<-first).want(t, 204)
	send(t, urls[1], request{key: key}).wantReplayOf(t, response{status: 204, header: http.Header{}})
	l.want(t, 1)
}

func caseK25(t *testing.T, d door) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		policy     api.ServerError
		runs       int64 // of two requests
		second     int
	}{
		"503 before sending": {503, "1", "", 2, 503},
		"503":                {503, "", "", 1, 409},
		"503 stored":         {503, "", api.ServerErrorStore, 1, 503},
		"503 early, stored":  {503, "1", api.ServerErrorStore, 2, 503},
		"500":                {500, "", "", 1, 409},
		"500 stored":         {500, "", api.ServerErrorStore, 1, 500},
		"500 released":       {500, "", api.ServerErrorRelease, 2, 500},
		"502":                {502, "", "", 1, 409},
		"504":                {504, "", "", 1, 409},
		"429":                {429, "", api.ServerErrorStore, 2, 429},
		"408":                {408, "", api.ServerErrorStore, 2, 408},
		"401":                {401, "", api.ServerErrorStore, 2, 401},
		"403":                {403, "", "", 2, 403},
		"407":                {407, "", "", 2, 407},
		"419":                {419, "", "", 2, 419},
		"425":                {425, "", "", 2, 425},
		"404 is an answer":   {404, "", "", 1, 404},
		"409 is an answer":   {409, "", "", 1, 409},
		"422 is an answer":   {422, "", "", 1, 422},
		"302 is an answer":   {302, "", "", 1, 302},
	} {
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
		}}
		r := payments(t)
		r.Operation, r.OnServerError = r.Operation+" "+name, c.policy
		url := d.node0(t, r, l)
		key := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		send(t, url, request{key: key}).want(t, c.status, "Idempotency-Status: executed", "Idempotent-Replayed: ")
		if got := send(t, url, request{key: key}); got.status != c.second {
			t.Errorf("%s: the second request is answered %d, want %d", name, got.status, c.second)
		}
		if got := l.effects.Load(); got != c.runs {
			t.Errorf("%s: %d runs, want %d", name, got, c.runs)
		}
	}
	if d.name == gateway.name {
		unreachable(t)
	}
}

// unreachable: nobody listens at the upstream, then somebody does.
func unreachable(t *testing.T) {
	listener := listen()
	address := listener.Addr().String()
	listener.Close()
	r := payments(t)
	r.Operation, r.Upstream = r.Operation+" unreachable", "http://"+address
	url := openRoutes(t, []api.Route{r}, r.Upstream, fleet()[0])[0]
	for range 2 {
		send(t, url, request{key: "u"}).wantProblem(t, 503, "upstream_unavailable")
	}
	send(t, url, request{path: "/elsewhere"}).wantProblem(t, 502, "upstream_failed")
}
