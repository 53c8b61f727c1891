package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestMiddleware(t *testing.T) {
	t.Parallel()
	t.Run("HandlerFindsItsClaim", func(t *testing.T) {
		t.Parallel()
		l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
			e, ok := api.ExecutionFrom(r.Context())
			claim, same := takeover.ClaimFrom(r.Context())
			if !ok || !same || e.Claim().Record.ID != claim.Record.ID || claim.Record.Resource != "7" || claim.Record.Epoch == 0 {
				t.Errorf("claim = %+v", claim)
			}
			_, _ = io.WriteString(w, chi.URLParam(r, "id")+r.PathValue("id"))
		}}
		url := middleware.node0(t, payments(t), l)
		if got := send(t, url, request{key: "k"}).want(t, 200); got.body != "77" {
			t.Errorf("body = %q", got.body)
		}
		free := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := api.ExecutionFrom(r.Context()); ok {
				t.Error("a request without a key has a claim")
			}
		})
		r := payments(t)
		r.Operation += " free"
		send(t, middleware.node0(t, r, free), request{}).want(t, 200)
	})
	t.Run("RoutingOutlivesTheClient", func(t *testing.T) {
		t.Parallel()
		begun, finish, seen := make(chan struct{}), make(chan struct{}), make(chan string, 1)
		l := &ledger{answer: func(_ http.ResponseWriter, r *http.Request) {
			if chi.URLParam(r, "id") != "7" {
				return
			}
			close(begun)
			<-finish
			seen <- chi.URLParam(r, "id")
		}}
		url := middleware.node0(t, payments(t), l)
		ctx, hangUp := context.WithCancel(t.Context())
		first := background(t, url, request{key: "k", ctx: ctx})
		<-begun
		hangUp()
		<-first
		for i := range 20 { // others use the router meanwhile
			send(t, url, request{path: fmt.Sprintf("/orders/x%d/payments", i), key: fmt.Sprint("other", i)}).want(t, 200)
		}
		close(finish)
		if id := <-seen; id != "7" {
			t.Errorf("the handler's path parameter became %q", id)
		}
	})
	t.Run("SurroundingsAreNotStored", func(t *testing.T) { t.Parallel(); surroundings(t) })
	t.Run("HandlerMaySayThatNothingWasDone", func(t *testing.T) {
		t.Parallel()
		l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
			e, _ := api.ExecutionFrom(r.Context())
			e.Untouched("out of stock")
			w.WriteHeader(http.StatusConflict)
		}}
		url := middleware.node0(t, payments(t), l)
		for range 2 {
			send(t, url, request{key: "k"}).want(t, 409, "Idempotency-Status: executed", "Idempotency-Expires: ")
		}
		l.want(t, 2)
	})
	t.Run("ShortResponseIsNotStored", func(t *testing.T) {
		t.Parallel()
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		}}
		url := middleware.node0(t, payments(t), l)
		if got := trySend(t, url, request{key: "k"}); got.err == nil {
			t.Errorf("it came to its end: %v", got)
		}
		send(t, url, request{key: "k"}).wantProblem(t, 409, "outcome_unknown")
		l.want(t, 1)
	})
	t.Run("HandlerMayCommitItself", func(t *testing.T) { t.Parallel(); commits(t) })
	t.Run("AHandlersDoubtIsNoAnswer", func(t *testing.T) { t.Parallel(); doubts(t) })
	t.Run("RefusesAnOperationTwice", func(t *testing.T) {
		t.Parallel()
		a, err := api.New(api.Config{Coordinator: fleet()[0]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Middleware(payments(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Middleware(payments(t)); err == nil {
			t.Error("accepted")
		}
		if _, err := a.Middleware(api.Route{}); err == nil {
			t.Error("accepted nothing")
		}
	})
	t.Run("AnswersWhoeverRecovers", func(t *testing.T) {
		t.Parallel()
		a, err := api.New(api.Config{Coordinator: fleet()[0]})
		if err != nil {
			t.Fatal(err)
		}
		r := payments(t)
		r.Reconciler, r.WorkTimeout = takeover.Reexecute, time.Minute
		if _, err := a.Middleware(r); err != nil {
			t.Fatal(err)
		}
		terms, work, known := a.Recover(records.Record{Operation: r.Operation})
		if !known || work != nil || terms.Reconciler == nil || terms.WorkTimeout != time.Minute {
			t.Errorf("%+v, %t", terms, known)
		}
		if _, _, known := a.Recover(records.Record{Operation: "else"}); known {
			t.Error("knows what it does not")
		}
	})
}

// surroundings: what an outer middleware sets for one request is not another
// request's.
func surroundings(t *testing.T) {
	a, err := api.New(api.Config{Coordinator: fleet()[0]})
	if err != nil {
		t.Fatal(err)
	}
	wrap, err := a.Middleware(payments(t))
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	inner := wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Inner", "kept")
		w.Header().Add("Vary", "Accept")
		_, _ = io.WriteString(w, "x")
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", fmt.Sprint(n.Add(1)))
		w.Header().Set("Vary", "Origin")
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for i := range 2 {
		got := send(t, server.URL, request{key: "k"}).want(t, 200, "X-Inner: kept", fmt.Sprintf("X-Request-Id: %d", i+1))
		if v := got.header.Values("Vary"); !equalStrings(v, []string{"Origin", "Accept"}) {
			t.Errorf("answer %d: Vary = %q", i, v)
		}
	}
}

// commits: the handler's own transaction stores the response; whatever it then
// writes or does, that stands.
func commits(t *testing.T) {
	var committed sync.Map // what its transaction would have stored
	store := openStore(t.TempDir() + "/probate.db")
	n := startNode("alone", store)
	t.Cleanup(n.close)
	for name, after := range map[string]func(w http.ResponseWriter){
		"Answers": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "paid")
		},
		"IsSilent": func(http.ResponseWriter) {},
		"Panics":   func(http.ResponseWriter) { panic("too late") },
	} {
		l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
			e, _ := api.ExecutionFrom(r.Context())
			answer := records.Response{Status: 201, Headers: []records.Header{{Name: "Set-Cookie", Value: "no"}, {Name: "X-Paid", Value: "1"}}, Body: []byte("paid")}
			o := e.Outcome(answer)
			claim := e.Claim()
			if err := store.Finalize(r.Context(), claim.Record.ID, claim.Record.Fence(), o); err != nil {
				t.Error(err)
			}
			committed.Store(name, o)
			e.Committed(o, answer)
			after(w)
		}}
		r := payments(t)
		r.Operation += name
		url := middleware.open(t, r, l, n)[0]
		first := send(t, url, request{key: name}).want(t, 201, "Idempotency-Status: executed", "Idempotent-Replayed: ")
		replay := send(t, url, request{key: name}).want(t, 201, "Idempotent-Replayed: true", "X-Paid: 1", "Set-Cookie: ")
		if first.body != "paid" || replay.body != "paid" {
			t.Errorf("%s: bodies = %q, %q", name, first.body, replay.body)
		}
		if o, _ := committed.Load(name); o.(records.Outcome).Retention != 24*time.Hour {
			t.Errorf("outcome = %+v", o)
		}
		l.want(t, 1)
	}
}

// doubts: whether the handler's own transaction has stored a response only the
// record can tell, so what the handler then writes is nobody's answer.
func doubts(t *testing.T) {
	store := openStore(t.TempDir() + "/probate.db")
	n := startNode("alone", store)
	t.Cleanup(n.close)
	for name, landed := range map[string]bool{"ItLanded": true, "ItDidNot": false} {
		l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
			e, _ := api.ExecutionFrom(r.Context())
			claim := e.Claim()
			o := e.Outcome(records.Response{Status: 201, Body: []byte("paid")})
			if landed {
				if err := store.Finalize(r.Context(), claim.Record.ID, claim.Record.Fence(), o); err != nil {
					t.Error(err)
				}
			}
			e.Doubtful()
			http.Error(w, "not enough money", http.StatusConflict)
		}}
		r := payments(t)
		r.Operation += name
		r.Reconciler = takeover.Reexecute
		url := middleware.open(t, r, l, n)[0]
		first := send(t, url, request{key: name})
		if !landed {
			if first.status == http.StatusConflict || first.body == "not enough money" {
				t.Errorf("the client is told %d %s", first.status, first.body)
			}
			if again := send(t, url, request{key: name}); again.status == http.StatusConflict {
				t.Errorf("a duplicate is told %d %s", again.status, again.body)
			}
			l.want(t, 2) // nothing was done, and the key was free again
			continue
		}
		replay := send(t, url, request{key: name}).want(t, 201, "Idempotent-Replayed: true")
		if first.want(t, 201).body != "paid" || replay.body != "paid" {
			t.Errorf("bodies = %q, %q", first.body, replay.body)
		}
		l.want(t, 1)
	}
}

// TestSlowClient: one that does not read slows its own response down, and
// holds up nothing once the work's time is over or it has hung up.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size     int64
		whole    bool // the handler gets to write all of it
		workTime time.Duration
		hangUp   bool
	}{
		"IsCutWhenTheWorkEnds":     {1 << 30, false, 300 * time.Millisecond, false},
		"IsForgottenWhenItHangsUp": {128 << 20, true, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			var written atomic.Int64
			l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				for chunk := make([]byte, 1<<20); r.Context().Err() == nil && written.Load() < c.size; {
					n, _ := w.Write(chunk)
					written.Add(int64(n))
				}
			}}
			r := payments(t)
			r.WorkTimeout = c.workTime
			conn := dial(t, middleware.node0(t, r, l))
			defer conn.Close()
			say(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", paymentPath)
			if c.hangUp { // but keeps the connection, and reads nothing
				before, still := int64(0), 0
				await(t, "a write waits", func() bool {
					now := written.Load()
					if still++; now != before || now == 0 {
						before, still = now, 0
					}
					return still > 20
				})
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			<-ended
			if n := written.Load(); (n == c.size) != c.whole {
				t.Errorf("the handler wrote %d of %d bytes to a client that read none", n, c.size)
			}
		})
	}
}

// late is a coordinator whose work begins only after its client has left.
type late struct{ begin, ended chan struct{} }

func (l late) Do(ctx context.Context, _ takeover.Request, work takeover.Work) (takeover.Answer, error) {
	<-ctx.Done()
	go func() {
		defer close(l.ended)
		<-l.begin
		work(context.WithoutCancel(ctx))
	}()
	return takeover.Answer{}, context.Cause(ctx)
}

// lost is a coordinator that cannot settle what it has executed.
type lost struct{}

func (lost) Do(ctx context.Context, _ takeover.Request, work takeover.Work) (takeover.Answer, error) {
	work(ctx)
	return takeover.Answer{}, takeover.ErrNotServing
}

func TestUnsettledWork(t *testing.T) {
	t.Parallel()
	l := creates()
	url := middleware.open(t, payments(t), l, lost{})[0]
	// It must not say that nothing was executed.
	send(t, url, request{key: "k"}).wantProblem(t, 409, "operation_in_progress")
	l.want(t, 1)
}

func TestLateWork(t *testing.T) {
	t.Parallel()
	l := late{make(chan struct{}), make(chan struct{})}
	a, err := api.New(api.Config{Coordinator: l})
	if err != nil {
		t.Fatal(err)
	}
	wrap, err := a.Middleware(payments(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Value
	router := chi.NewRouter()
	router.With(wrap).Handle("/orders/{id}/payments", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write(make([]byte, 2<<20)) // more than is kept
		if r.Header.Get("Idempotency-Key") != "" {
			seen.Store(chi.URLParam(r, "id"))
		}
	}))
	ask := func(ctx context.Context, path, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody)
		r.Header.Set("Authorization", "alice")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	w := ask(gone, paymentPath, "k")
	for range 20 { // others use the router meanwhile
		ask(t.Context(), "/orders/another/payments", "")
	}
	close(l.begin)
	<-l.ended
	if seen.Load() != "7" || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("the handler saw %v; the response of who has left has %d bytes, %v", seen.Load(), w.Body.Len(), w.Header())
	}
}
