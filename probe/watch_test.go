package probe_test

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// watching starts a watch and returns once the owner has begun to wait.
func watching(t *testing.T, c *probe.Client, n *node, id records.ID) <-chan probe.Observation {
	t.Helper()
	before := n.running.asked.Load()
	got := make(chan probe.Observation, 1)
	go func() { got <- c.Watch(t.Context(), n.executor, id, 1, probe.MaxWait) }()
	eventually(t, "the watch reaches the owner", func() bool { return n.running.asked.Load() > before })
	return got
}

func receive(t *testing.T, from <-chan probe.Observation) probe.Observation {
	t.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(patience):
		t.Fatal("no observation")
		return probe.Observation{}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()

	t.Run("ReturnsWhenTheRecordLeavesTheRunningSet", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		end := n.running.begin(recordID(1))
		got := watching(t, newClient(t, nil), n, recordID(1))
		end()
		if o := receive(t, got); o.Verdict != probe.NotRunning || o.Err != nil || !o.Alive() {
			t.Fatalf("got %+v", o)
		}
	})

	t.Run("SaysRunningWhenTheWaitEnds", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		defer n.running.begin(recordID(1))()
		o := newClient(t, nil).Watch(t.Context(), n.executor, recordID(1), 1, 20*time.Millisecond)
		if o.Verdict != probe.Running || o.Err != nil {
			t.Fatalf("got %+v", o)
		}
	})

	t.Run("SaysRunningWhenTheRecordWasClaimedAgain", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		end := n.running.begin(recordID(1))
		got := watching(t, newClient(t, nil), n, recordID(1))
		n.running.mu.Lock()
		n.running.all = true // by the time the watch looks again, it runs again
		n.running.mu.Unlock()
		end()
		if o := receive(t, got); o.Verdict != probe.Running {
			t.Fatalf("got %+v", o)
		}
	})

	t.Run("OneConnectionCarriesAThousand", func(t *testing.T) {
		t.Parallel()
		const watches = 1000
		n := newNode(t, 1, nil)
		ends := make([]func(), watches)
		for i := range ends {
			ends[i] = n.running.begin(recordID(i))
		}
		c := newClient(t, func(c *probe.ClientConfig) { c.Header = patience })
		got := make(chan probe.Observation, watches)
		for i := range watches {
			go func() { got <- c.Watch(t.Context(), n.executor, recordID(i), 1, probe.MaxWait) }()
		}
		eventually(t, "all wait", func() bool { return n.running.asked.Load() == watches })
		for _, end := range ends {
			end()
		}
		for range watches {
			if o := receive(t, got); o.Verdict != probe.NotRunning {
				t.Fatalf("got %+v", o)
			}
		}
		if n := n.accepted.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})

	t.Run("ProbesHaveConnectionsOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		defer n.running.begin(recordID(1))()
		c := newClient(t, nil)
		for range 3 {
			if o := c.Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Running {
				t.Fatalf("got %+v", o)
			}
			if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Millisecond); o.Verdict != probe.Running {
				t.Fatalf("got %+v", o)
			}
		}
		if n := n.accepted.Load(); n != 3+1 {
			t.Errorf("%d connections, want 4", n)
		}
	})

	t.Run("CancellingOneLeavesTheOthers", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		end := n.running.begin(recordID(1))
		c := newClient(t, nil)
		other := watching(t, c, n, recordID(1))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the client hung up")
		mine := make(chan probe.Observation, 1)
		go func() { mine <- c.Watch(ctx, n.executor, recordID(1), 1, probe.MaxWait) }()
		eventually(t, "both wait", func() bool { return n.running.asked.Load() == 2 })
		cancel(why)
		if o := receive(t, mine); !o.Cancelled || o.Broken || o.Verdict != probe.Unknown || !errors.Is(o.Err, why) {
			t.Fatalf("cancelled watch: %+v", o)
		}
		end()
		if o := receive(t, other); o.Verdict != probe.NotRunning {
			t.Fatalf("other watch: %+v", o)
		}
		if n := n.accepted.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})

	t.Run("IsDialledAgainAfterTheConnectionEnded", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		c := newClient(t, nil)
		for range 3 {
			if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.NotRunning {
				t.Fatalf("got %+v", o)
			}
			n.cut()
		}
		if n := n.accepted.Load(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
	})

	t.Run("IsAnsweredByAServerThatShutsDown", func(t *testing.T) {
		t.Parallel()
		n := unregistered(t, 1, nil)
		s := probe.Server(n.handler, nil)
		n.executor.URL = "http://" + n.serve(t, s)
		end := n.running.begin(recordID(1))
		c := newClient(t, nil)
		got := watching(t, c, n, recordID(1))
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(t.Context()) }()
		eventually(t, "new watches are refused", func() bool {
			return c.Watch(t.Context(), n.executor, recordID(2), 1, time.Second).Verdict == probe.Down
		})
		end()
		if o := receive(t, got); o.Verdict != probe.NotRunning || o.Broken {
			t.Fatalf("got %+v", o)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})

	t.Run("RefusedIsDown", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		n.executor.URL = "http://" + refusing(t)
		if o := newClient(t, nil).Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.Down || o.Broken {
			t.Fatalf("got %+v", o)
		}
	})

	t.Run("NeedsHTTP2", func(t *testing.T) {
		t.Parallel()
		n := unregistered(t, 1, nil)
		n.executor.URL = "http://" + n.serve(t, &http.Server{Handler: n.handler, ReadHeaderTimeout: patience})
		if o := newClient(t, nil).Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.Unknown || o.Broken {
			t.Fatalf("got %+v", o)
		}
	})

	t.Run("ClosingTheClientIsNoVerdict", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		defer n.running.begin(recordID(1))()
		c := newClient(t, nil)
		got := watching(t, c, n, recordID(1))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if o := receive(t, got); !o.Cancelled || o.Broken || !errors.Is(o.Err, probe.ErrClosed) {
			t.Fatalf("got %+v", o)
		}
		if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Second); !errors.Is(o.Err, probe.ErrClosed) {
			t.Fatalf("after Close: %+v", o)
		}
		if o := c.Probe(t.Context(), n.executor, recordID(1), 1); !errors.Is(o.Err, probe.ErrClosed) {
			t.Fatalf("after Close: %+v", o)
		}
	})
}

// TestWatchBreaks holds what ends a watch without an answer. Each watch would
// last a minute, and the context ends well before: only the break itself can
// give Broken.
func TestWatchBreaks(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, c *probe.Client, e records.Executor) <-chan probe.Observation {
		t.Helper()
		// A short watch first: its answer shows that the connection is up.
		if o := c.Watch(t.Context(), e, recordID(1), 1, time.Millisecond); o.Verdict != probe.Running {
			t.Fatalf("before: %+v", o)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		got := make(chan probe.Observation, 1)
		go func() { got <- c.Watch(ctx, e, recordID(1), 1, probe.MaxWait) }()
		return got
	}

	t.Run("WhenTheProcessIsKilled", func(t *testing.T) {
		t.Parallel()
		p := startProcess(t)
		through := newRelay(t, p.executor.URL)
		e := p.executor
		e.URL = through.url
		c := newClient(t, nil)
		got := begin(t, c, e)
		eventually(t, "the watch has begun", func() bool { return through.headers.Load() == 2 })
		p.signal(t, syscall.SIGKILL)
		if o := receive(t, got); !o.Broken || o.Verdict != probe.Unknown || o.Cancelled {
			t.Fatalf("got %+v", o)
		}
		_ = p.cmd.Wait()
		if o := c.Probe(t.Context(), p.executor, recordID(1), 1); o.Verdict != probe.Down {
			t.Fatalf("then: %+v", o)
		}
	})

	t.Run("WhenTheProcessIsStopped", func(t *testing.T) {
		t.Parallel()
		p := startProcess(t)
		through := newRelay(t, p.executor.URL)
		e := p.executor
		e.URL = through.url
		got := begin(t, newClient(t, nil), e)
		eventually(t, "the watch has begun", func() bool { return through.headers.Load() == 2 })
		p.signal(t, syscall.SIGSTOP)
		if o := receive(t, got); !o.Broken || o.Verdict != probe.Unknown || o.Cancelled {
			t.Fatalf("got %+v", o)
		}
		if o := newClient(t, impatient).Probe(t.Context(), p.executor, recordID(1), 1); o.Verdict != probe.Silent {
			t.Fatalf("then: %+v", o)
		}
	})

	t.Run("WhenTheNetworkSwallowsEverything", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		defer n.running.begin(recordID(1))()
		through := newRelay(t, n.executor.URL)
		n.executor.URL = through.url
		got := begin(t, newClient(t, nil), n.executor)
		eventually(t, "the watch has begun", func() bool { return through.headers.Load() == 2 })
		through.swallow.Store(true)
		if o := receive(t, got); !o.Broken || o.Verdict != probe.Unknown || o.Cancelled {
			t.Fatalf("got %+v", o)
		}
	})
}
