package probe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// refusing is an address that nobody listens at.
func refusing(t testing.TB) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// answering is the URL of a listener that treats every connection so.
func answering(t testing.TB, treat func(net.Conn)) (url string) {
	t.Helper()
	l := listen(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() { treat(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// readQuestion reads one whole request.
func readQuestion(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// reset answers with a reset.
func reset(c net.Conn) {
	readQuestion(c)
	closeWithReset(c)
}

func closeWithReset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// saying writes the bytes as the answer, and closes.
func saying(answer string) func(net.Conn) {
	return func(c net.Conn) {
		readQuestion(c)
		_, _ = io.WriteString(c, answer)
		c.Close()
	}
}

// withHandler is the URL of an HTTP server.
func withHandler(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func withStatus(t testing.TB, status int) (url string) {
	t.Helper()
	return withHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
}

// TestProbe has a row for every way in which an executor can be found or
// missed (the table of verdicts in the protocol).
func TestProbe(t *testing.T) {
	t.Parallel()
	silent := func(c net.Conn) { readQuestion(c) }
	fixed := func(url string) func(*testing.T, *node) string {
		return func(*testing.T, *node) string { return url }
	}
	for _, row := range []struct {
		name string
		url  func(t *testing.T, a *node) string
		want probe.Verdict
		is   error // found in Err
		slow bool  // ends by a timeout
	}{
		{"RefusedIsDown", func(t *testing.T, _ *node) string { return "http://" + refusing(t) }, probe.Down, probe.ErrNoConnection, false},
		{"ResetBeforeAnAnswerIsDown", func(t *testing.T, _ *node) string { return answering(t, reset) }, probe.Down, probe.ErrNoAnswer, false},
		{"NoHeaderInTimeIsSilent", func(t *testing.T, _ *node) string { return answering(t, silent) }, probe.Silent, probe.ErrNoAnswer, true},
		{"NoConnectionInTimeIsSilent", func(t *testing.T, _ *node) string { return "http://" + fullBacklog(t) }, probe.Silent, probe.ErrNoConnection, true},
		{"ClosedWithoutAWordIsUnknown", func(t *testing.T, _ *node) string { return answering(t, saying("")) }, probe.Unknown, probe.ErrNoAnswer, false},
		{"CutHeaderIsUnknown", func(t *testing.T, _ *node) string { return answering(t, saying("HTTP/1.1 200 OK\r\nContent-Le")) }, probe.Unknown, probe.ErrNoAnswer, false},
		{"CutBodyIsUnknown", func(t *testing.T, _ *node) string {
			return answering(t, saying("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"))
		}, probe.Unknown, probe.ErrNoAnswer, false},
		{"ResetInTheMiddleIsUnknown", func(t *testing.T, _ *node) string {
			return answering(t, func(c net.Conn) {
				readQuestion(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
				closeWithReset(c)
			})
		}, probe.Unknown, probe.ErrNoAnswer, false},
		{"StalledBodyIsUnknown", func(t *testing.T, _ *node) string {
			return answering(t, func(c net.Conn) {
				readQuestion(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			})
		}, probe.Unknown, probe.ErrNoAnswer, true},
		{"OtherProtocolIsUnknown", func(t *testing.T, _ *node) string { return answering(t, saying("220 mail.example ESMTP\r\n")) }, probe.Unknown, probe.ErrNoAnswer, false},
		{"OversizeIsUnknown", func(t *testing.T, _ *node) string {
			return withHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat(" ", probe.MaxMessage+1))
			}))
		}, probe.Unknown, probe.ErrNotOurs, false},
		{"EmptyBodyIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 200) }, probe.Unknown, probe.ErrNotOurs, false},
		{"NoContentIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 204) }, probe.Unknown, probe.ErrNotOurs, false},
		{"NotFoundIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 404) }, probe.Unknown, probe.ErrNotOurs, false},
		{"TooManyRequestsIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 429) }, probe.Unknown, probe.ErrNotOurs, false},
		{"ServerErrorIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 500) }, probe.Unknown, probe.ErrNotOurs, false},
		{"UnavailableIsUnknown", func(t *testing.T, _ *node) string { return withStatus(t, 503) }, probe.Unknown, probe.ErrNotOurs, false},
		{"NotAURLIsUnknown", fixed("::"), probe.Unknown, probe.ErrForbidden, false},
		{"NoURLIsUnknown", fixed(""), probe.Unknown, probe.ErrForbidden, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newNode(t, 1, nil)
			a.executor.URL = row.url(t, a)
			c := newClient(t, nil)
			if row.slow {
				c = newClient(t, impatient)
			}
			o := c.Probe(t.Context(), a.executor, recordID(1), 7)
			if o.Verdict != row.want || !errors.Is(o.Err, row.is) {
				t.Errorf("got %v (%v), want %v", o.Verdict, o.Err, row.want)
			}
			if o.Alive() || o.Cancelled || o.Broken {
				t.Errorf("nobody proved anything: %+v", o)
			}
		})
	}
}

func TestProbeThroughAProxy(t *testing.T) {
	t.Parallel()
	a := newNode(t, 1, nil)
	defer a.running.begin(recordID(1))()
	behind, err := url.Parse(a.executor.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, nil)

	t.Run("AnAnswerProvesLifeAndNoMore", func(t *testing.T) {
		t.Parallel()
		e := a.executor
		e.URL = withHandler(t, httputil.NewSingleHostReverseProxy(behind)) // adds X-Forwarded-For
		if o := c.Probe(t.Context(), e, recordID(1), 7); o.Verdict != probe.Unknown || !o.Alive() || o.Err == nil {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("ADeadExecutorIsUnknown", func(t *testing.T) {
		t.Parallel()
		e := a.executor
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: refusing(t)})
		p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
		e.URL = withHandler(t, p)
		if o := c.Probe(t.Context(), e, recordID(1), 7); o.Verdict != probe.Unknown || o.Alive() {
			t.Errorf("got %+v", o)
		}
	})
}

// TestProbeIgnoresTheEnvironment cannot be parallel: it sets HTTP_PROXY.
func TestProbeIgnoresTheEnvironment(t *testing.T) {
	tripped := withHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, tripped)
	}
	t.Setenv("NO_PROXY", "")
	a := newNode(t, 1, nil)
	_, port, _ := strings.Cut(strings.TrimPrefix(a.executor.URL, "http://"), ":")
	a.executor.URL = "http://node.example:" + port // no proxy is ever used for localhost
	probed, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.executor.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := http.ProxyFromEnvironment(probed); err != nil || p == nil {
		t.Fatalf("the environment names no proxy (%v, %v): this test proves nothing", p, err)
	}
	r := newResolver(t)
	r.answer("node.example.", netip.MustParseAddr("127.0.0.1"))
	c := newClient(t, func(c *probe.ClientConfig) { c.Resolver = r.resolver() })
	if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.NotRunning {
		t.Errorf("probe: %+v", o)
	}
	if o := c.Watch(t.Context(), a.executor, recordID(1), 7, time.Second); o.Verdict != probe.NotRunning {
		t.Errorf("watch: %+v", o)
	}
}

func TestProbeCancelledIsNoVerdict(t *testing.T) {
	t.Parallel()
	a := newNode(t, 1, nil)
	asked := make(chan struct{}, 1)
	a.executor.URL = answering(t, func(c net.Conn) {
		readQuestion(c)
		asked <- struct{}{}
	})
	why := errors.New("the caller went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(why)
	}()
	if o := newClient(t, nil).Probe(ctx, a.executor, recordID(1), 7); o.Verdict != probe.Unknown || !o.Cancelled || !errors.Is(o.Err, why) {
		t.Errorf("got %+v", o)
	}

	short, done := context.WithTimeout(t.Context(), time.Millisecond)
	defer done()
	a.executor.URL = answering(t, readQuestion)
	if o := newClient(t, nil).Probe(short, a.executor, recordID(1), 7); o.Verdict != probe.Unknown || !o.Cancelled || !errors.Is(o.Err, context.DeadlineExceeded) {
		t.Errorf("its own deadline: %+v", o)
	}
}

func TestProbeToken(t *testing.T) {
	t.Parallel()
	a := newNode(t, 1, func(c *probe.HandlerConfig) { c.Token = "fleet" })
	for token, want := range map[string]probe.Verdict{"fleet": probe.NotRunning, "other": probe.Unknown, "": probe.Unknown} {
		c := newClient(t, func(c *probe.ClientConfig) { c.Token = token })
		if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != want {
			t.Errorf("token %q: %+v", token, o)
		}
	}
}

func TestWitness(t *testing.T) {
	t.Parallel()
	w, a := newNode(t, 1, nil), newNode(t, 2, nil)
	dead := a.executor
	dead.ID, dead.URL = executorID(3), "http://"+refusing(t)
	w.peers.add(a.executor)
	w.peers.add(dead)
	c := newClient(t, nil)
	for _, row := range []struct {
		name    string
		suspect records.ExecutorID
		saw     probe.Verdict
		alive   bool
	}{
		{"SeesTheLiving", a.executor.ID, probe.NotRunning, true},
		{"SeesTheDead", dead.ID, probe.Down, false},
		{"DoesNotKnowEverybody", executorID(9), probe.Unknown, false},
		{"SignsForItself", w.executor.ID, probe.NotRunning, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := c.Witness(t.Context(), w.executor, row.suspect)
			if got.Heard.Err != nil || !got.Heard.Alive() || got.Saw != row.saw || got.SuspectAlive != row.alive {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("IsItselfDown", func(t *testing.T) {
		t.Parallel()
		if got := c.Witness(t.Context(), dead, a.executor.ID); got.Heard.Verdict != probe.Down || got.Heard.Alive() || got.Saw != probe.Unknown {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("SpeaksOfAnother", func(t *testing.T) {
		t.Parallel()
		e := w.executor
		e.URL = withHandler(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			var q struct{ Executor, Nonce string }
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(strings.NewReader(question(a.executor.ID.String(), q.Nonce, "")))
			w.handler.ServeHTTP(out, r)
		}))
		if got := c.Witness(t.Context(), e, dead.ID); got.Heard.Alive() || got.SuspectAlive || got.Saw != probe.Unknown || !errors.Is(got.Heard.Err, probe.ErrNotOurs) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("AnotherOneSigned", func(t *testing.T) {
		t.Parallel()
		other := w.executor
		other.ID = executorID(8)
		var list peers
		list.add(w.executor)
		c := newClient(t, func(c *probe.ClientConfig) { c.Lookup = list.Lookup })
		if got := c.Witness(t.Context(), other, a.executor.ID); got.Heard.Alive() || got.SuspectAlive || got.Saw != probe.Unknown {
			t.Errorf("got %+v", got)
		}
	})
}

func ExampleVerdict() {
	var v probe.Verdict
	fmt.Println(v, v.Signed(), probe.NotRunning, probe.NotRunning.Signed())
	// Output: unknown false not_running true
}
