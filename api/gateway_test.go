package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestGateway is about what is between a client and its upstream.
func TestGateway(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		say(w, "%s %s%s %q\n", r.Method, r.Host, r.RequestURI, body)
		for _, name := range []string{"Idempotency-Key", "Traceparent", "X-Forwarded-For", "X-Forwarded-Proto", "User-Agent", "Accept-Encoding", "Idempotency-Epoch"} {
			say(w, "%s: %s\n", name, strings.Join(r.Header.Values(name), "|"))
		}
	})
	header := http.Header{
		"Traceparent": {"00-1-2-03"}, "X-Forwarded-For": {"10.1.1.1"}, "X-Forwarded-Proto": {"https"}, "User-Agent": {""}, "Idempotency-Epoch": {"666"},
	}
	want := func(t *testing.T, got response, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(got.body, line+"\n") {
				t.Errorf("the upstream did not see %q:\n%s", line, got.body)
			}
		}
	}
	url := gateway.node0(t, payments(t), echo)
	host := strings.TrimPrefix(url, "http://")
	t.Run("ForwardsARecordedRequest", func(t *testing.T) {
		t.Parallel()
		got := send(t, url, request{path: paymentPath + "?a;b&c=%zz", key: `"k"`, body: "pay", header: header}).want(t, 200)
		want(t, got, `POST `+host+paymentPath+`?a;b&c=%zz "pay"`, `Idempotency-Key: "k"`, "Traceparent: 00-1-2-03",
			"X-Forwarded-For: 10.1.1.1, 127.0.0.1", "X-Forwarded-Proto: https", "User-Agent: ", "Accept-Encoding: ")
		if strings.Contains(got.body, "Idempotency-Epoch: 666") || strings.Contains(got.body, "Idempotency-Epoch: \n") {
			t.Errorf("the fence is not ours:\n%s", got.body)
		}
	})
	t.Run("PassesTheRest", func(t *testing.T) {
		t.Parallel()
		for _, q := range []request{
			{method: "GET", path: paymentPath},
			{method: "PUT", path: paymentPath, body: "x"},
			{method: "PROPFIND", path: paymentPath},
			{method: "POST", path: "/else?x=1", key: "k", body: "x"},
			{method: "REPORT", path: "/else"},
			{path: paymentPath, body: "x"},
		} {
			q.header = header
			got := send(t, url, q).want(t, 200, "Idempotent-Replayed: ")
			setDefaultMethod(&q)
			want(t, got, fmt.Sprintf("%s %s%s %q", q.method, host, q.path, q.body), "Traceparent: 00-1-2-03", "Idempotency-Epoch: ")
		}
	})
	t.Run("MarksABypass", func(t *testing.T) {
		t.Parallel()
		send(t, url, request{method: "GET", path: paymentPath, key: "k"}).want(t, 200, "Idempotency-Status: bypassed")
		send(t, url, request{method: "GET", path: paymentPath}).want(t, 200, "Idempotency-Status: ")
	})
	t.Run("KnowsNoOtherPaths", func(t *testing.T) {
		t.Parallel()
		closed := openRoutes(t, nil, "", fleet()[0])[0]
		send(t, closed, request{path: "/x"}).wantProblem(t, 404, "not_found")
		send(t, closed, request{method: "PROPFIND", path: "/x"}).wantProblem(t, 404, "not_found")
	})
	t.Run("TimesOut", func(t *testing.T) {
		t.Parallel()
		late := make(chan struct{})
		l := &ledger{answer: func(http.ResponseWriter, *http.Request) { <-late }}
		r := payments(t)
		r.Timeout = 50 * time.Millisecond
		slow := gateway.node0(t, r, l)
		t.Cleanup(func() { close(late) })
		send(t, slow, request{key: "k"}).wantProblem(t, 409, "outcome_unknown")
		send(t, slow, request{key: "k"}).wantProblem(t, 409, "outcome_unknown")
		l.want(t, 1)
	})
	t.Run("CutResponseIsNotStored", func(t *testing.T) {
		t.Parallel()
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		}}
		cut := gateway.node0(t, payments(t), l)
		send(t, cut, request{key: "k"}).wantProblem(t, 409, "outcome_unknown")
		send(t, cut, request{key: "k"}).wantProblem(t, 409, "outcome_unknown")
		l.want(t, 1)
	})
	t.Run("SecretIsForItsFirstCaller", func(t *testing.T) {
		t.Parallel()
		l := creates()
		r := payments(t)
		r.SecretResponse = true
		secret := gateway.node0(t, r, l)
		if got := send(t, secret, request{key: "k"}).want(t, 201); !strings.Contains(got.body, "effect") {
			t.Errorf("body = %q", got.body)
		}
		p := send(t, secret, request{key: "k"}).wantProblem(t, 409, "result_not_replayable")
		if p["stored_status"] != 201.0 || p["stored_digest"] != nil || p["stored_size"] != nil {
			t.Errorf("problem = %v", p)
		}
		l.want(t, 1)
	})
}

func setDefaultMethod(q *request) {
	if q.method == "" {
		q.method = http.MethodPost
	}
}
