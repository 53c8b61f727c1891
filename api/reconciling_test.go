package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// answers is a service that is asked what became of an operation: it gives one
// answer after another, the last one for good.
type answers struct {
	all   []http.HandlerFunc
	asked atomic.Int64
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(a.asked.Add(1))
	a.all[min(n, len(a.all))-1](w, r)
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

// badAnswers are what a reconcile URL may not say, and the reason that is kept.
var badAnswers = map[string]struct {
	answer http.HandlerFunc
	reason string
}{
	"NotTheFormat":  {says(`applied`), "parse statement"},
	"AnotherStatus": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "status 418, want 200"},
	"AnotherMedium": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "content type"},
	"TooLarge":      {says(`{"finding": "not_applied"}` + strings.Repeat(" ", 3<<20)), "answer is too large"},
	"TooLargeABody": {says(`{"finding": "applied", "response": {"status": 200, "body": "` + strings.Repeat("x", 1<<20+1) + `"}}`), "over 1048576"},
	"Late": {func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the asker has gone
		<-r.Context().Done()
	}, "deadline exceeded"},
	"CutOff":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	"AppliedAlone":     {says(`{"finding": "applied"}`), "applied without a response"},
	"NotAppliedButHas": {says(`{"finding": "not_applied", "response": {"status": 200}}`), `finding "not_applied" with a response`},
	"ASecretStatus":    {says(`{"finding": "applied", "response": {"status": 401}}`), "status 401 cannot be stored"},
}

// TestReconcileURL_BadAnswers: what is no answer is asked again, and once there
// is no more time the outcome is unknown, with the reason.
func TestReconcileURL_BadAnswers(t *testing.T) {
	t.Parallel()
	failing := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }}
	for name, c := range badAnswers {
		late := name == "Late"
		asking := func(t *testing.T, a *answers) api.Route {
			server := serve(a)
			t.Cleanup(server.Close)
			r := payments(t)
			r.Reconcile = api.Reconcile{URL: server.URL, Timeout: time.Minute}
			if late { // only there time has to pass
				r.Reconcile.Timeout = 300 * time.Millisecond
			}
			return r
		}
		t.Run("ThenAGoodOne/"+name, func(t *testing.T) {
			t.Parallel()
			a := &answers{all: []http.HandlerFunc{c.answer, says(`{"finding": "pending"}`), says(`{"finding": "applied", "response": {"status": 201, "body": "paid"}}`)}}
			url := middleware.node0(t, asking(t, a), failing)
			if got := send(t, url, request{key: "k"}).want(t, 201, "Idempotency-Status: reconciled"); got.body != "paid" || a.asked.Load() != 3 && !late {
				t.Errorf("%q after %d questions", got.body, a.asked.Load())
			}
			send(t, url, request{key: "k"}).want(t, 201, "Idempotency-Status: replayed")
		})
		t.Run("ForGood/"+name, func(t *testing.T) {
			t.Parallel()
			var asked int64
			for limit := time.Second; asked < 3 && limit < time.Minute; limit *= 2 { // a slow machine has no time for as many questions
				a := &answers{all: []http.HandlerFunc{c.answer}}
				r := asking(t, a)
				r.WorkTimeout = limit
				reason := make(chan string, 1)
				url := middleware.open(t, r, failing, telling{fleet()[0], reason})[0]
				if got := send(t, url, request{key: limit.String()}); got.status != http.StatusInternalServerError {
					t.Errorf("the first caller is told %d", got.status)
				}
				got := <-reason
				if asked = a.asked.Load(); asked >= 3 && !strings.Contains(got, c.reason) || !strings.HasPrefix(got, "status 500; no finding until the work deadline") {
					t.Errorf("reason = %q, want %q", got, c.reason)
				}
			}
			if asked < 3 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// telling is a coordinator that tells why what it ran came to nothing.
type telling struct {
	api.Coordinator
	reason chan<- string
}

// Do implements [api.Coordinator].
func (c telling) Do(ctx context.Context, req takeover.Request, work takeover.Work) (takeover.Answer, error) {
	a, err := c.Coordinator.Do(ctx, req, work)
	if a.Record.State == records.Unknown {
		c.reason <- a.Completion.Reason
	}
	return a, err
}

// TestReconciler_InGo: a route's own reconciler may fail in every way that Go
// has, and is asked again.
func TestReconciler_InGo(t *testing.T) {
	t.Parallel()
	paid := records.Response{Status: 201, Headers: []records.Header{{Name: "Set-Cookie", Value: "no"}, {Name: "X-Paid", Value: "1"}}, Body: []byte("paid")}
	for name, bad := range map[string]takeover.ReconcilerFunc{
		"Fails": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundNotApplied(), errors.New("down")
		},
		"Panics": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) { panic("oops") },
		"EndsItsGoroutine": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			runtime.Goexit()
			return takeover.Finding{}, nil
		},
		"FindsWhatIsNeverStored": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(records.Response{Status: 429}), nil
		},
		"FindsTooMuch": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(records.Response{Status: 200, Body: make([]byte, 2<<20)}), nil
		},
		"FindsAHeaderThatIsNone": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(records.Response{Status: 200, Headers: []records.Header{{Name: "A", Value: "b\r\nC: d"}}}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			r := payments(t)
			r.Reconciler = takeover.ReconcilerFunc(func(ctx context.Context, rec records.Record, req takeover.Request) (takeover.Finding, error) {
				if asked.Add(1) == 1 {
					return bad(ctx, rec, req)
				}
				return takeover.FoundApplied(paid), nil
			})
			failing := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }}
			url := middleware.node0(t, r, failing)
			got := send(t, url, request{key: "k"}).want(t, 201, "Idempotency-Status: reconciled", "X-Paid: 1", "Set-Cookie: ")
			if got.body != "paid" || asked.Load() != 2 {
				t.Errorf("%q after %d questions", got.body, asked.Load())
			}
			failing.want(t, 1)
		})
	}
}

// TestReconcileGet_OfTheRequest: what the request says leads to what it made;
// a node that has no request at hand leaves it to a duplicate.
func TestReconcileGet_OfTheRequest(t *testing.T) {
	t.Parallel()
	var target atomic.Value
	things := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target.Store(r.URL.RequestURI())
		_, _ = io.WriteString(w, "it")
	}))
	t.Cleanup(things.Close)
	throughBoth(t, func(t *testing.T, d door) {
		r := payments(t)
		r.Reconcile = api.Reconcile{
			Get:             things.URL + "/{path:id}?customer={json:/customer}",
			ResponseHeaders: map[string]string{"Location": "/orders/{path:id}/payments/{key}"},
		}
		failing := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }}
		url := d.node0(t, r, failing)
		send(t, url, request{key: "k", body: `{"customer": "a&b"}`}).
			want(t, 201, "Idempotency-Status: reconciled", "Location: /orders/7/payments/k")
		if got := target.Load(); got != "/7?customer=a%26b" {
			t.Errorf("asked %s", got)
		}
		send(t, url, request{key: "nobody", body: `{}`}).want(t, 500)
		send(t, url, request{key: "nobody", body: `{}`}).wantProblem(t, 409, "outcome_unknown")
	})
}
