package takeover_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// connect gives a member a real listener, the real handler and the real
// client, whose questions go through the fleet's links.
func connect(f *fleet, m *member, at string) {
	address := "127.0.0.1:0"
	if at != "" {
		address = hostOf(f.t, at)
	}
	var listener net.Listener
	f.await("the address is free", func() (ok bool) {
		l, err := (&net.ListenConfig{}).Listen(f.t.Context(), "tcp", address)
		listener = l
		return err == nil
	})
	m.config.URL = "http://" + listener.Addr().String()
	client := probe.NewClient(probe.ClientConfig{
		Cluster: "test", Dial: m.config.DialTimeout, Header: m.config.HeaderTimeout,
		Lookup: func(id records.ExecutorID) (records.Executor, bool) { return m.Lookup(id) },
	})
	m.asker = counted{linkedAsker{client, f, m.name}, m}
	front := &m.calls.front
	server := probe.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*front.Load()).ServeHTTP(w, r) }), nil)
	served := make(chan struct{})
	m.serve = func() {
		handler, err := probe.NewHandler(probe.HandlerConfig{
			Cluster: "test", Version: "test", Self: m.Node, Runs: m.Node, Node: m.Node, Peers: m.Node, Prober: linkedAsker{client, f, m.name},
		})
		if err != nil {
			f.t.Fatal(err)
		}
		m.calls.pretend(handler)
		go func() {
			defer close(served)
			_ = server.Serve(listener)
		}()
	}
	m.hangUp = func() { _ = server.Close() }
	m.free = func() {
		_ = listener.Close()
		if m.calls.front.Load() != nil {
			<-served
		}
		_ = client.Close()
	}
}

func hostOf(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// calls are the questions that one node has asked, and what answers at its
// own URL.
type calls struct {
	probes, watches, witnesses atomic.Int64 // attestations do not count
	beforeProbe                atomic.Pointer[func()]
	front                      atomic.Pointer[http.Handler] // over real sockets
	station                    atomic.Pointer[station]      // in a bubble
}

func (c *calls) total() int64 { return c.probes.Load() + c.watches.Load() + c.witnesses.Load() }

// pretend puts somebody else at the node's URL.
func (c *calls) pretend(h http.Handler) { c.front.Store(&h) }

// counted counts what a node asks.
type counted struct {
	takeover.Asker
	*member
}

func (a counted) self() records.ExecutorID { return a.Identity().Executor }

func (a counted) Probe(ctx context.Context, e records.Executor, id records.ID, epoch int64) probe.Observation {
	if before := a.calls.beforeProbe.Load(); before != nil {
		(*before)()
	}
	a.calls.probes.Add(1)
	return a.Asker.Probe(ctx, e, id, epoch)
}

func (a counted) Watch(ctx context.Context, e records.Executor, id records.ID, epoch int64, wait time.Duration) probe.Observation {
	a.calls.watches.Add(1)
	return a.Asker.Watch(ctx, e, id, epoch, wait)
}

func (a counted) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony {
	if suspect != a.self() {
		a.calls.witnesses.Add(1)
	}
	return a.Asker.Witness(ctx, w, suspect)
}

// linkedAsker asks through the fleet's link from its node to the asked one,
// if there is one.
type linkedAsker struct {
	takeover.Asker
	fleet *fleet
	from  string
}

func (a linkedAsker) Probe(ctx context.Context, e records.Executor, id records.ID, epoch int64) probe.Observation {
	return a.Asker.Probe(ctx, a.through(e), id, epoch)
}

func (a linkedAsker) Watch(ctx context.Context, e records.Executor, id records.ID, epoch int64, wait time.Duration) probe.Observation {
	return a.Asker.Watch(ctx, a.through(e), id, epoch, wait)
}

func (a linkedAsker) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony {
	return a.Asker.Witness(ctx, a.through(w), suspect)
}

func (a linkedAsker) through(e records.Executor) records.Executor {
	a.fleet.mu.Lock()
	defer a.fleet.mu.Unlock()
	for _, m := range a.fleet.boots {
		if l, ok := a.fleet.lines[[2]string{a.from, m.name}].(*link); ok && m.config.URL == e.URL {
			e.URL = "http://" + l.addr()
		}
	}
	return e
}

// between is the line on which from asks to.
func (f *fleet) between(from, to *member) line {
	f.t.Helper()
	if f.virtual {
		return f.wired(from, to)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := [2]string{from.name, to.name}
	if l, ok := f.lines[key]; ok {
		return l
	}
	l := newLink(f.t, hostOf(f.t, to.config.URL))
	f.lines[key] = l
	return l
}

// isolate sets every line to and from a node.
func (f *fleet) isolate(m *member, how fault, from ...*member) {
	for _, other := range from {
		f.between(m, other).set(how)
		f.between(other, m).set(how)
	}
}
