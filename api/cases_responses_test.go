package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/api"
)

func caseK29(t *testing.T, d door) {
	l := creates()
	urls := d.bothNodes(t, payments(t), l)
	first := send(t, urls[0], request{key: "k", body: "{}", header: http.Header{"Origin": {"https://shop"}}}).
		want(t, 201, "Location: /payments/1", `Etag: "v1"`, "Content-Type: application/json", "Idempotency-Key: k", "Idempotency-Status: executed")
	if e := first.header.Get("Access-Control-Expose-Headers"); !strings.Contains(e, "Idempotency-Status") {
		t.Errorf("a page cannot read the marks: %q", e)
	}
	if first.header.Get("Idempotency-Expires") == "" || first.header.Get("Cache-Control") != "" {
		t.Errorf("headers = %v", first.header)
	}
	for _, url := range urls {
		replay := send(t, url, request{key: "k", body: "{}"})
		replay.wantReplayOf(t, first)
		replay.want(t, 201, "Idempotency-Status: replayed", "Cache-Control: no-store", "Idempotency-Key: k")
		if replay.header.Get("Idempotency-Expires") == "" {
			t.Error("a replay does not say until when")
		}
	}
	l.want(t, 1)
}

func caseK30(t *testing.T, d door) {
	for _, c := range []struct {
		method string
		status int
		runs   int64
	}{
		{"POST", 200, 1},
		{"POST", 201, 1},
		{"POST", 202, 1},
		{"POST", 204, 1},
		{"POST", 205, 1},
		{"POST", 304, 2},
		{"POST", 206, 2},
		{"HEAD", 200, 2},
	} {
		var runs atomic.Int64
		service := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.WriteHeader(c.status)
		})
		r := payments(t)
		name := fmt.Sprint(c.method, c.status)
		r.Operation += name
		url := d.node0(t, r, service)
		q := request{method: c.method, key: name}
		first := send(t, url, q).want(t, c.status, "Content-Type: ")
		if first.body != "" {
			t.Errorf("%s: body = %q", name, first.body)
		}
		second := send(t, url, q).want(t, c.status, "Content-Type: ")
		switch {
		case c.method == "HEAD":
			second.want(t, 200, "Idempotency-Status: bypassed")
		case c.runs == 1:
			second.wantReplayOf(t, first)
		}
		if got := runs.Load(); got != c.runs {
			t.Errorf("%s: %d runs, want %d", name, got, c.runs)
		}
	}
}

func caseK31(t *testing.T, d door) {
	body := strings.Repeat("0123456789abcdef", 1<<16) + "!"
	for name, size := range map[string]int{"at the limit": 1 << 20, "over it": 1<<20 + 1} {
		for _, declared := range []bool{true, false} {
			l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Location", "/big")
				if declared {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				w.WriteHeader(http.StatusCreated)
				for rest := body[:size]; rest != ""; {
					n := min(len(rest), 10_000)
					_, _ = io.WriteString(w, rest[:n])
					rest = rest[n:]
				}
			}}
			r := payments(t)
			r.Operation = fmt.Sprint(r.Operation, name, declared)
			url := d.node0(t, r, l)
			key := fmt.Sprintf("k%d%t", size, declared)
			first := send(t, url, request{key: key}).want(t, 201, "Idempotency-Status: executed", "Location: /big")
			if first.body != body[:size] {
				t.Fatalf("%s: the first caller got %d bytes, want %d", name, len(first.body), size)
			}
			if size <= 1<<20 {
				send(t, url, request{key: key}).wantReplayOf(t, first)
			} else {
				p := send(t, url, request{key: key}).wantProblem(t, 409, "result_not_replayable")
				if p["stored_status"] != 201.0 || p["location"] != "/big" || p["stored_size"] != float64(size) || !strings.HasPrefix(p["stored_digest"].(string), "sha-256=:") {
					t.Errorf("problem = %v", p)
				}
			}
			l.want(t, 1)
		}
	}
}

func caseK32(t *testing.T, d door) {
	t.Run("ServerSentEvents", func(t *testing.T) { streams(t, d) })
	t.Run("FlushBeforeWriting", func(t *testing.T) {
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "data: late\n\n")
		}}
		r := payments(t)
		r.Operation += "flush"
		url := d.node0(t, r, l)
		if got := send(t, url, request{key: "f"}).want(t, 200); got.body != "data: late\n\n" {
			t.Errorf("body = %q", got.body)
		}
		send(t, url, request{key: "f"}).wantProblem(t, 409, "result_not_replayable")
		l.want(t, 1)
	})
	t.Run("EarlyHints", func(t *testing.T) { hints(t, d) })
	t.Run("Upgrade", func(t *testing.T) { upgrades(t, d) })
	if d.name == middleware.name {
		t.Run("Hijack", func(t *testing.T) { hijacks(t, d) })
		t.Run("Unwrap", func(t *testing.T) { unwraps(t, d) })
		t.Run("Controls", func(t *testing.T) { controls(t, d) })
	} else {
		t.Run("UnknownLengthIsNoStream", func(t *testing.T) {
			l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "in")
				_ = http.NewResponseController(w).Flush() // in chunks
				_, _ = io.WriteString(w, " pieces")
			}}
			r := payments(t)
			r.Operation += "pieces"
			url := d.node0(t, r, l)
			first := send(t, url, request{key: "p"}).want(t, 200)
			send(t, url, request{key: "p"}).wantReplayOf(t, first)
		})
	}
}

// streams: the client sees the first event while the handler still waits.
func streams(t *testing.T, d door) {
	seen := make(chan struct{})
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-seen
		_, _ = io.WriteString(w, "data: 2\n\n")
	}}
	url := d.node0(t, payments(t), l)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+paymentPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Idempotency-Key": {"sse"}, "Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("first event = %q, %v", line, err)
	}
	close(seen)
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Fatalf("rest = %q, %v", rest, err)
	}
	if resp.Header.Get("Idempotency-Status") != "executed" {
		t.Errorf("headers = %v", resp.Header)
	}
	p := send(t, url, request{key: "sse"}).wantProblem(t, 409, "result_not_replayable")
	if p["stored_size"] != 18.0 {
		t.Errorf("problem = %v", p)
	}
	l.want(t, 1)
}

func hints(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusCreated)
	}}
	r := payments(t)
	r.Operation += "hints"
	url := d.node0(t, r, l)
	var early atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		if status == 103 && h.Get("Link") != "" {
			early.Add(1)
		}
		return nil
	}})
	first := send(t, url, request{key: "h", ctx: ctx}).want(t, 201, "Link: ")
	send(t, url, request{key: "h", ctx: ctx}).wantReplayOf(t, first)
	if early.Load() != 1 {
		t.Errorf("%d early hints, want 1: of the first answer", early.Load())
	}
	l.want(t, 1)
}

// upgrades: a request that changes the protocol is not recorded, and bytes
// flow both ways.
func upgrades(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		say(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		say(conn, "echo %s", line)
	}}
	r := payments(t)
	r.Operation += "upgrade"
	address := d.node0(t, r, l)
	for range 2 {
		conn := dial(t, address)
		say(conn, "POST %s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: u\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", paymentPath)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
		say(conn, "hello\n")
		if line, err := in.ReadString('\n'); err != nil || line != "echo hello\n" {
			t.Errorf("got %q, %v", line, err)
		}
		conn.Close()
	}
	l.want(t, 2)
}

func hijacks(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
		conn.Close()
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("wrote to a hijacked response")
		}
	}}
	r := payments(t)
	r.Operation += "hijack"
	url := d.node0(t, r, l)
	if got := send(t, url, request{key: "j"}).want(t, 200); got.body != "raw" {
		t.Errorf("body = %q", got.body)
	}
	send(t, url, request{key: "j"}).wantProblem(t, 409, "result_not_replayable")
	l.want(t, 1)
}

func unwraps(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		inner := w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
		inner.Header().Set("X-Inner", "yes")
		_, _ = io.WriteString(inner, "beneath")
	}}
	r := payments(t)
	r.Operation += "unwrap"
	url := d.node0(t, r, l)
	if got := send(t, url, request{key: "w"}).want(t, 200, "X-Inner: yes", "Idempotency-Status: executed"); got.body != "beneath" {
		t.Errorf("body = %q", got.body)
	}
	send(t, url, request{key: "w"}).wantProblem(t, 409, "result_not_replayable")
	l.want(t, 1)
}

// controls: what an http.ResponseController can do without changing how the
// response is kept.
func controls(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for _, err := range []error{rc.SetReadDeadline(timeT{}), rc.SetWriteDeadline(timeT{}), rc.EnableFullDuplex()} {
			if err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("from a reader"))
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Sum", "13")
	}}
	r := payments(t)
	r.Operation += "controls"
	url := d.node0(t, r, l)
	first := send(t, url, request{key: "c"}).want(t, 200)
	first.header.Del("Trailer")
	replay := send(t, url, request{key: "c"}).want(t, 200, "Idempotent-Replayed: true", "X-Sum: ", "Trailer: ")
	if replay.body != "from a reader" || first.body != replay.body {
		t.Errorf("bodies = %q, %q", first.body, replay.body)
	}
	l.want(t, 1)
}

func caseK33(t *testing.T, d door) {
	for _, status := range []int{422, 404, 500} {
		l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }}
		r := payments(t)
		r.Operation, r.OnServerError = fmt.Sprint(r.Operation, status), api.ServerErrorStore
		url := d.node0(t, r, l)
		key := fmt.Sprint("k", status)
		first := send(t, url, request{key: key}).want(t, status, "Idempotent-Replayed: ")
		send(t, url, request{key: key}).wantReplayOf(t, first)
		l.want(t, 1)
	}
}

func caseK34(t *testing.T, d door) {
	l := creates()
	urls := d.bothNodes(t, payments(t), l)
	first := send(t, urls[0], request{key: "k"}).want(t, 201)
	for i := range 9 {
		send(t, urls[(i+1)%2], request{key: "k"}).wantReplayOf(t, first)
	}
	l.want(t, 1)
}

func caseK39(t *testing.T, d door) {
	l := creates()
	urls := d.bothNodes(t, payments(t), l)
	var executed, others atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			got := trySend(t, urls[i%2], request{key: "k", body: "{}"})
			if got.err != nil || got.status != 201 || got.body != "{\"effect\":1}\n" {
				t.Errorf("got %d %q, %v", got.status, got.body, got.err)
			}
			switch status, replayed := got.header.Get("Idempotency-Status"), got.header.Get("Idempotent-Replayed"); {
			case status == "executed" && replayed == "":
				executed.Add(1)
			case (status == "waited" || status == "replayed") && replayed == "true":
				others.Add(1)
			default:
				t.Errorf("status %q, replayed %q", status, replayed)
			}
		})
	}
	all.Wait()
	if executed.Load() != 1 || others.Load() != 49 {
		t.Errorf("%d executed, %d waited or replayed; want 1 and 49", executed.Load(), others.Load())
	}
	l.want(t, 1)
}
