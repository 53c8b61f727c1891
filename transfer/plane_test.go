package transfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// alone is an asker of a fleet of one: it reaches itself and nobody else.
type alone struct{}

func (alone) Probe(context.Context, records.Executor, records.ID, int64) probe.Observation {
	return probe.Observation{Verdict: probe.NotRunning}
}

func (alone) Watch(context.Context, records.Executor, records.ID, int64, time.Duration) probe.Observation {
	return probe.Observation{}
}

func (alone) Witness(context.Context, records.Executor, records.ExecutorID) probe.Testimony {
	return probe.Testimony{}
}

// peers of a fleet of one.
type peers struct{ node *takeover.Node }

func (p peers) Self() records.ExecutorID                       { return p.node.Identity().Executor }
func (peers) Running(context.Context, records.Held) bool       { return false }
func (peers) Heed(_ context.Context, _ string, _ string) error { return errors.New("there is nobody") }

// ends are what a test makes of them.
type ends struct {
	source func(t transfer.Task) (move.Source, error)
	dir    string
}

func (e ends) Source(t transfer.Task) (move.Source, error) { return e.source(t) }
func (e ends) Bound(transfer.Task) bool                    { return false }
func (e ends) Sink(t transfer.Task) (move.Sink, error) {
	return move.FileSink{Root: e.dir, Path: strings.TrimPrefix(t.Destination().Endpoint, "file://")}, nil
}

func (e ends) Inbox(transfer.Task) (move.Sink, error) { return nil, errors.New("none") }

// rig is a plane on a node of its own, in this process.
type rig struct {
	*transfer.Plane
	t   testing.TB
	dir string
	url string
}

func newRig(t testing.TB, source func(t transfer.Task) (move.Source, error), configure func(c *transfer.Config)) *rig {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "probate.db"), Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: t.TempDir()}
	config := takeover.Config{Slot: "a", URL: "http://127.0.0.1:1"}
	config.Recover = func(rec records.Record) (takeover.Terms, takeover.Work, bool) { return r.Recover(rec) }
	node, err := takeover.New(config, store, alone{})
	if err != nil {
		t.Fatal(err)
	}
	c := transfer.Config{
		Coordinator: node, Store: store, Peers: peers{node}, Ends: ends{source, r.dir}, Slot: "a", Logger: slog.New(slog.DiscardHandler),
		RoundPause: time.Millisecond, NoteEvery: 10 * time.Millisecond, StrayEvery: 50 * time.Millisecond, CallbackPause: 5 * time.Millisecond,
	}
	configure(&c)
	if r.Plane, err = transfer.New(c); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/dataflows", r.Routes()))
	r.url = server.URL + "/dataflows"
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = node.Run(ctx) }) // it ends because the test does
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		server.Close()
		r.Drain()
		stop()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.await("the node serves", func() bool { return node.Status().State == records.Active })
	return r
}

func (r *rig) await(what string, condition func() bool) {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("did not happen within a minute: %s", what)
		}
	}
}

// exchange sends a request and returns all of the answer.
func (r *rig) exchange(method, path, body string) (status int, header http.Header, answer string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// ask returns the status, the state or the problem's code, and the error.
func (r *rig) ask(method, path, body string) (status int, state, reason string) {
	r.t.Helper()
	status, _, answer := r.exchange(method, path, body)
	var said struct{ State, Code, Error string }
	if err := json.Unmarshal([]byte(answer), &said); err != nil && answer != "" {
		r.t.Fatal(err)
	}
	return status, said.State + said.Code, said.Error
}

// offered sends a message to whose answer belongs an address, and returns the
// token in it.
func (r *rig) offered(path, body string) (token string) {
	r.t.Helper()
	status, _, answer := r.exchange(http.MethodPost, path, body)
	var said struct {
		DataAddress struct {
			EndpointProperties []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &said); err != nil || len(said.DataAddress.EndpointProperties) == 0 {
		r.t.Fatalf("%s: %d %s: no token", path, status, answer)
	}
	return said.DataAddress.EndpointProperties[0].Value
}

func (r *rig) start(id, dataset string) (status int, state string) {
	status, state, _ = r.ask(http.MethodPost, "/start", fmt.Sprintf(`{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x",
		"processId":%q,"agreementId":"a","datasetId":%q,"profile":"x-push","dataAddress":{"endpointType":"file","endpoint":"file://%s"}}`, id, dataset, id))
	return status, state
}

func (r *rig) becomes(id, want string) (reason string) {
	r.t.Helper()
	var state string
	r.await(id+" becomes "+want, func() bool {
		_, state, reason = r.ask(http.MethodGet, "/"+id+"/status", "")
		return state == want
	})
	return reason
}

// empty demands that nothing stands at the sink.
func (r *rig) empty() {
	r.t.Helper()
	left, err := os.ReadDir(r.dir)
	if err != nil || len(left) > 0 {
		r.t.Errorf("left at the sink: %v, %v", left, err)
	}
}

// content is a source in memory.
type content []byte

func (c content) Open(context.Context, int64, string) (*move.Body, error) {
	return &move.Body{ReadCloser: io.NopCloser(bytes.NewReader(c)), Length: int64(len(c))}, nil
}

// panics is a source that takes whoever reads it down.
type panics struct{}

func (panics) Open(context.Context, int64, string) (*move.Body, error) { panic("a fault of ours") }

// held is a source that gives nothing until it is let go.
type held struct{ release <-chan struct{} }

func (h held) Open(ctx context.Context, _ int64, _ string) (*move.Body, error) {
	select {
	case <-h.release:
		return content("late").Open(ctx, 0, "")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestCase(t *testing.T) {
	t.Parallel()
	t.Run("F20_AFlowThatAlwaysPanicsEndsAndOthersMove", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, func(task transfer.Task) (move.Source, error) {
			if task.Dataset() == "bad" {
				return panics{}, nil
			}
			return content("good"), nil
		}, func(c *transfer.Config) { c.Rounds = 3 })
		for _, dataset := range []string{"bad", "good"} {
			if status, state := r.start(dataset, dataset); status != http.StatusOK { // it may be over by now
				t.Fatalf("start: %d %s", status, state)
			}
		}
		r.becomes("good", "COMPLETED")
		if reason := r.becomes("bad", "TERMINATED"); !strings.Contains(reason, "gave up after 3 tries") || !strings.Contains(reason, "a fault of ours") {
			t.Errorf("reason = %q", reason)
		}
		if status, state := r.start("bad", "bad"); status != http.StatusOK || state != "TERMINATED" {
			t.Errorf("start again: %d %s", status, state)
		}
	})
}

// endless is a source that has always more.
type endless struct{}

func (endless) Open(context.Context, int64, string) (*move.Body, error) {
	return &move.Body{ReadCloser: io.NopCloser(zeroes{}), Length: -1}, nil
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }

// unwritable is a store in which no owner can write that its flow is complete.
type unwritable struct{ transfer.Store }

func (u unwritable) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if m.To == records.FlowCompleted && m.Fence != (records.Fence{}) {
		return records.Flow{}, records.ErrUnavailable
	}
	return u.Store.MoveFlow(ctx, m)
}

func TestEnding(t *testing.T) {
	t.Parallel()
	t.Run("ThatCouldNotBeWrittenIsReadFromTheRecord", func(t *testing.T) {
		t.Parallel()
		c := newControl(t)
		var opened atomic.Int32
		r := newRig(t, func(transfer.Task) (move.Source, error) { return counted{content("good"), &opened}, nil }, func(p *transfer.Config) {
			p.Store, p.ControlPlane = unwritable{p.Store}, c.url
		})
		r.start("f", "d")
		r.becomes("f", "COMPLETED")
		r.await("it is told", func() bool { return c.told("/f/dataflow/completed") == 1 })
		if n := opened.Load(); n != 1 {
			t.Errorf("the source was opened %d times", n)
		}
	})
}

// counted counts how often a source is opened.
type counted struct {
	move.Source
	opened *atomic.Int32
}

func (c counted) Open(ctx context.Context, from int64, validator string) (*move.Body, error) {
	c.opened.Add(1)
	return c.Source.Open(ctx, from, validator)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source    move.Source
		configure func(c *transfer.Config)
		says      string
	}{
		"AnEndlessSourceIsCutOff": {endless{}, func(c *transfer.Config) { c.MaxBytes = 1 << 20 }, "larger than allowed"},
		"ASourceThatStallsIsGivenUp": {held{nil}, func(c *transfer.Config) {
			c.StallTimeout, c.Rounds = 20*time.Millisecond, 1
		}, "stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(transfer.Task) (move.Source, error) { return c.source, nil }, c.configure)
			r.start("f", "d")
			if reason := r.becomes("f", "TERMINATED"); !strings.Contains(reason, c.says) {
				t.Errorf("reason = %q, want %q", reason, c.says)
			}
			r.empty()
		})
	}
	t.Run("OverThemAStartIsToldToComeAgain", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		r := newRig(t, func(transfer.Task) (move.Source, error) { return held{release}, nil },
			func(c *transfer.Config) { c.Flows, c.Queue = 1, 1 })
		for _, id := range []string{"one", "two"} {
			if status, state := r.start(id, "d"); status != http.StatusOK || state != "STARTED" {
				t.Fatalf("start %s: %d %s", id, status, state)
			}
		}
		if status, code := r.start("three", "d"); status != http.StatusTooManyRequests || code != "too_many_flows" {
			t.Errorf("the third: %d %s", status, code)
		}
		if status, _, _ := r.ask(http.MethodGet, "/three/status", ""); status != http.StatusNotFound {
			t.Errorf("it was remembered: %d", status)
		}
		if status, state := r.start("two", "d"); status != http.StatusOK || state != "STARTED" {
			t.Errorf("a repeat: %d %s", status, state)
		}
		// One that waits for its turn can be stopped like one that moves.
		if status, _, _ := r.ask(http.MethodPost, "/two/terminate", `{"messageId":"m"}`); status != http.StatusOK {
			t.Errorf("terminate: %d", status)
		}
		close(release)
		r.becomes("one", "COMPLETED")
		if _, state, _ := r.ask(http.MethodGet, "/two/status", ""); state != "TERMINATED" {
			t.Errorf("two is %s", state)
		}
		if status, state := r.start("three", "d"); status != http.StatusOK || state != "STARTED" && state != "COMPLETED" {
			t.Errorf("the third, later: %d %s", status, state)
		}
	})
}
