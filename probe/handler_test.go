package probe_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

const goodNonce = "000102030405060708090a0b0c0d0e0f"

func question(executor, nonce, more string) string {
	return `{"executor":"` + executor + `","nonce":"` + nonce + `"` + more + `}`
}

// ask sends one request over a real connection.
func ask(t *testing.T, method, url, body string, header ...string) (status int, h http.Header, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, nil)
	me := n.executor.ID.String()
	path := "/probe/records/" + recordID(1).String()
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"NoSuchPath", "GET", "/nothing", "", 404, "not_found"},
		{"NoSuchMethod", "GET", path, "", 405, "method_not_allowed"},
		{"NoSuchMethodOnProbe", "DELETE", "/probe", "", 405, "method_not_allowed"},
		{"ShortRecord", "POST", "/probe/records/ab", question(me, goodNonce, ""), 400, "record_id_invalid"},
		{"UpperCaseRecord", "POST", "/probe/records/" + strings.Repeat("AB", 32), question(me, goodNonce, ""), 400, "record_id_invalid"},
		{"NoBody", "POST", path, "", 400, "question_invalid"},
		{"NotJSON", "POST", path, "hello", 400, "question_invalid"},
		{"NotAnObject", "POST", path, "[]", 400, "question_invalid"},
		{"Null", "POST", path, "null", 400, "question_invalid"},
		{"TrailingData", "POST", path, question(me, goodNonce, "") + "{}", 400, "question_invalid"},
		{"NoExecutor", "POST", path, `{"nonce":"` + goodNonce + `"}`, 400, "question_invalid"},
		{"BadExecutor", "POST", path, question("1-1-1-1-1", goodNonce, ""), 400, "question_invalid"},
		{"NoNonce", "POST", path, `{"executor":"` + me + `"}`, 400, "question_invalid"},
		{"ShortNonce", "POST", path, question(me, "00", ""), 400, "question_invalid"},
		{"FractionalEpoch", "POST", path, question(me, goodNonce, `,"epoch":1.5`), 400, "question_invalid"},
		{"NegativeWait", "POST", path, question(me, goodNonce, `,"wait_ms":-1`), 400, "question_invalid"},
		{"LongWait", "POST", path, question(me, goodNonce, `,"wait_ms":60001`), 400, "question_invalid"},
		{"HugeWait", "POST", path, question(me, goodNonce, `,"wait_ms":99999999999999999999`), 400, "question_invalid"},
		{"Oversize", "POST", path, question(me, goodNonce, "") + strings.Repeat(" ", 5000), 413, "question_too_large"},
		{"WitnessWithoutBody", "POST", "/probe/witness", "", 400, "question_invalid"},
		{"WitnessByURL", "POST", "/probe/witness", `{"executor":"http://169.254.169.254","nonce":"` + goodNonce + `"}`, 400, "question_invalid"},
		{"WitnessOversize", "POST", "/probe/witness", strings.Repeat(" ", 5000), 413, "question_too_large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			status, h, body := ask(t, row.method, n.executor.URL+row.path, row.body)
			var problem struct {
				Status int
				Code   string
			}
			if err := json.Unmarshal([]byte(body), &problem); err != nil {
				t.Fatalf("%d %s: %v", status, body, err)
			}
			if status != row.status || problem.Status != row.status || problem.Code != row.code || h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %d %s", status, body)
			}
		})
	}
}

func TestHandlerAccepts(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, nil)
	path := n.executor.URL + "/probe/records/" + recordID(1).String()
	for name, body := range map[string]string{
		"TheLeast":            question(n.executor.ID.String(), goodNonce, ""),
		"ALargestEpoch":       question(n.executor.ID.String(), goodNonce, `,"epoch":9223372036854775807`),
		"AFieldOfLaterTimes":  question(n.executor.ID.String(), goodNonce, `,"hint":{"a":1}`),
		"ALongWaitForNothing": question(n.executor.ID.String(), goodNonce, `,"wait_ms":60000`),
	} {
		status, h, answer := ask(t, http.MethodPost, path, body)
		if status != http.StatusOK || h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || !strings.HasPrefix(answer, `{"payload":`) {
			t.Errorf("%s: %d %v %s", name, status, h, answer)
		}
	}
}

// TestHandlerMeantForAnother: who is not asked says so, whatever it runs, and
// makes nobody wait.
func TestHandlerMeantForAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, nil)
	defer n.running.begin(recordID(1))()
	_, _, body := ask(t, http.MethodPost, n.executor.URL+"/probe/records/"+recordID(1).String(),
		question(executorID(9).String(), goodNonce, `,"epoch":7,"wait_ms":60000`))
	s, err := probe.Open([]byte(body), probe.KindRecord, func(records.ExecutorID) (ed25519.PublicKey, bool) { return n.executor.PublicKey, true })
	if err != nil || s.Answer != probe.AnswerNotMe || s.Executor != n.executor.ID || s.Slot != n.executor.Slot || s.Epoch != 7 || s.Nonce.String() != goodNonce || s.Cluster != cluster || s.Proxied {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestHandlerNotRegistered(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, nil)
	n.identity = probe.Identity{}
	if o := newClient(t, nil).Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Unknown {
		t.Errorf("got %+v", o)
	}
	status, h, _ := ask(t, http.MethodPost, n.executor.URL+"/probe/witness", question(n.executor.ID.String(), goodNonce, ""))
	if status != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("got %d %v", status, h)
	}
}

func TestHandlerNeedsItsParts(t *testing.T) {
	t.Parallel()
	_, err := probe.NewHandler(probe.HandlerConfig{Cluster: cluster})
	if err == nil {
		t.Fatal("nothing given, and no error")
	}
	for _, part := range []string{"identity", "running set", "node status", "list of peers", "prober"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not missed in: %v", part, err)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(s *probe.Status)
		want   int
	}{
		{"Active", func(*probe.Status) {}, 200},
		{"StoreSlow", func(s *probe.Status) { s.HeartbeatAge = s.LeaseTTL }, 200},
		{"StoreGoneForALease", func(s *probe.Status) { s.HeartbeatAge = s.LeaseTTL + time.Millisecond }, 503},
		{"Draining", func(s *probe.Status) { s.State = records.Draining }, 503},
		{"Fenced", func(s *probe.Status) { s.State = records.Fenced }, 503},
		{"Gone", func(s *probe.Status) { s.State = records.Gone }, 503},
		{"NotRegistered", func(s *probe.Status) { *s = probe.Status{} }, 503},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1, func(c *probe.HandlerConfig) { c.Token = "fleet" }) // a balancer has no token
			n.status.InProgress, n.status.HeartbeatAge = 3, 412*time.Millisecond
			row.change(&n.status)
			for _, path := range []string{"/probe", "/readyz"} {
				status, h, body := ask(t, http.MethodGet, n.executor.URL+path, "")
				var got map[string]any
				if err := json.Unmarshal([]byte(body), &got); err != nil {
					t.Fatal(err)
				}
				want := map[string]any{
					"executor": n.status.Executor.String(), "slot": n.status.Slot, "state": string(n.status.State),
					"in_progress": float64(n.status.InProgress), "heartbeat_age_ms": float64(n.status.HeartbeatAge.Milliseconds()), "version": "v0.0.0-test",
				}
				for k, v := range want {
					if got[k] != v {
						t.Errorf("%s: %s is %v, want %v", path, k, got[k], v)
					}
				}
				if status != row.want || h.Get("Content-Type") != "application/json" || len(got) != len(want) {
					t.Errorf("%s: %d %v %s", path, status, h, body)
				}
				if status, _, body := ask(t, http.MethodHead, n.executor.URL+path, ""); status != row.want || body != "" {
					t.Errorf("HEAD %s: %d %s", path, status, body)
				}
			}
			if status, _, _ := ask(t, http.MethodGet, n.executor.URL+"/livez", ""); status != http.StatusOK {
				t.Errorf("/livez: %d", status)
			}
		})
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, func(c *probe.HandlerConfig) { c.Token = "fleet" })
	for value, want := range map[string]int{
		"Bearer fleet": 200, "bearer fleet": 200,
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer fleet ": 200, "Bearer fleets": 401, "Basic fleet": 401, "fleet": 401,
	} {
		for _, path := range []string{"/probe/records/" + recordID(1).String(), "/probe/witness"} {
			status, h, _ := ask(t, http.MethodPost, n.executor.URL+path, question(n.executor.ID.String(), goodNonce, ""), "Authorization", value)
			if status != want || (want == 401) != (h.Get("WWW-Authenticate") != "") {
				t.Errorf("%s with %q: %d", path, value, status)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, l probe.Limits) (*node, *probe.Client) {
		t.Helper()
		n := newNode(t, 1, func(c *probe.HandlerConfig) { c.Limits = l })
		return n, newClient(t, nil)
	}
	for name, limits := range map[string]probe.Limits{
		"PollsOfAll":     {Polls: 1},
		"PollsOfOnePeer": {PollsPerPeer: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, c := start(t, limits)
			end := n.running.begin(recordID(1))
			got := watching(t, c, n, recordID(1))
			if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.Unknown || o.Broken || !strings.Contains(o.Err.Error(), "429") {
				t.Errorf("over the limit: %+v", o)
			}
			if o := c.Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Running {
				t.Errorf("a probe next to full polls: %+v", o)
			}
			end()
			if o := receive(t, got); o.Verdict != probe.NotRunning {
				t.Errorf("within the limit: %+v", o)
			}
			if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.NotRunning {
				t.Errorf("after: %+v", o)
			}
		})
	}

	t.Run("APollEndsWithItsWatcher", func(t *testing.T) {
		t.Parallel()
		n, c := start(t, probe.Limits{Polls: 1})
		defer n.running.begin(recordID(1))()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan probe.Observation, 1)
		go func() { got <- c.Watch(ctx, n.executor, recordID(1), 1, probe.MaxWait) }()
		eventually(t, "the watch reaches the owner", func() bool { return n.running.asked.Load() > 0 })
		cancel()
		receive(t, got)
		eventually(t, "there is room again", func() bool {
			return c.Watch(t.Context(), n.executor, recordID(1), 1, time.Millisecond).Verdict == probe.Running
		})
	})

	t.Run("Witnesses", func(t *testing.T) {
		t.Parallel()
		slow := &slowProber{asked: make(chan struct{}), finish: make(chan struct{})}
		n := newNode(t, 1, func(c *probe.HandlerConfig) {
			c.Limits, c.Prober = probe.Limits{WitnessesPerPeer: 1}, slow
		})
		suspect := n.executor
		suspect.ID = executorID(2)
		n.peers.add(suspect)
		c := newClient(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := c.Witness(t.Context(), n.executor, suspect.ID); got.Saw != probe.Silent {
				t.Errorf("within the limit: %+v", got)
			}
		})
		<-slow.asked
		if got := c.Witness(t.Context(), n.executor, suspect.ID); got.Heard.Alive() || !strings.Contains(got.Heard.Err.Error(), "429") {
			t.Errorf("over the limit: %+v", got)
		}
		close(slow.finish)
		wg.Wait()
	})
}

type slowProber struct{ asked, finish chan struct{} }

func (p *slowProber) Probe(context.Context, records.Executor, records.ID, int64) probe.Observation {
	p.asked <- struct{}{}
	<-p.finish
	return probe.Observation{Verdict: probe.Silent}
}

// TestServerLetsLongPollsLive: no limit of the server is shorter than a poll.
func TestServerLetsLongPollsLive(t *testing.T) {
	t.Parallel()
	s := probe.Server(http.NotFoundHandler(), nil)
	if s.ReadTimeout != 0 {
		t.Error("a read timeout ends the context of a poll on HTTP/1.1")
	}
	if s.WriteTimeout <= probe.MaxWait {
		t.Error("the write timeout cuts a poll")
	}
	if s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 {
		t.Error("a connection may do nothing for ever")
	}
}

// TestWatchOverHTTP1: a person with curl may watch too.
func TestWatchOverHTTP1(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, nil)
	end := n.running.begin(recordID(1))
	go func() {
		eventually(t, "the watch reaches the owner", func() bool { return n.running.asked.Load() > 0 })
		end()
	}()
	status, _, body := ask(t, http.MethodPost, n.executor.URL+"/probe/records/"+recordID(1).String(), question(n.executor.ID.String(), goodNonce, `,"wait_ms":60000`))
	if status != http.StatusOK || !strings.HasPrefix(body, `{"payload":`) {
		t.Errorf("%d %s", status, body)
	}
}

// FuzzQuestion: whatever the body, the handler answers one of the documented
// statuses, and 200 only with a message.
func FuzzQuestion(f *testing.F) {
	n := unregistered(f, 1, nil)
	me := n.executor.ID.String()
	f.Add("/probe/witness", []byte(question(me, goodNonce, "")))
	f.Add("/probe/records/"+recordID(1).String(), []byte(question(me, goodNonce, `,"epoch":3,"wait_ms":1`)))
	f.Add("/probe/records/x", []byte("{"))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(body)))
		r.URL.Path = path
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		switch w.Code {
		case 200:
			if !strings.HasPrefix(w.Body.String(), `{"payload":`) {
				t.Errorf("200 with %s", w.Body)
			}
		case 400, 404, 405, 413:
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%d with %s", w.Code, w.Body)
			}
		default:
			t.Errorf("%d with %s", w.Code, w.Body)
		}
	})
}
