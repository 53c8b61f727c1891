package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

type doctorCmd struct {
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (doctorCmd) Help() string {
	return `Run it where the node runs, with the node's configuration and environment, whether or not the node is running.

Example:

  probate doctor --config /etc/probate.yaml`
}

// How a check went.
const (
	healthy    = "ok"
	doubtful   = "warning"
	sick       = "failed"
	notChecked = "not checked"
)

// check is one thing that doctor has looked at.
type check struct {
	Name   string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

// examination collects what was looked at.
type examination struct {
	config Config
	checks []check
	store  records.Store // nil: it cannot be used
}

func (x *examination) add(name, result, advice, format string, args ...any) {
	x.checks = append(x.checks, check{name, result, fmt.Sprintf(format, args...), advice})
}

// Run implements the subcommand.
func (c *doctorCmd) Run(ctx context.Context, e *env) error {
	config, err := readConfig(e.settings(c.Settings))
	x := &examination{config: config}
	if err != nil {
		for _, f := range faultsOf(err) {
			x.add("configuration", sick, "correct it; probate.example.yaml documents every key", "%v", f)
		}
	} else {
		x.add("configuration", healthy, "", "%d routes, cluster %q", len(config.Routes), config.Cluster)
		x.add("sealing", healthy, "", "%s", config.sealing())
		x.operators()
		x.folders()
		for _, w := range config.gateway().Warnings() {
			x.add("routes", doubtful, "give the route a reconcile, or an on_server_error other than unknown", "%s", w)
		}
		x.examine(ctx, e)
	}
	if err := x.show(e); err != nil {
		return err
	}
	for _, c := range x.checks {
		if c.Result == sick {
			return errors.New("something is wrong")
		}
	}
	return nil
}

func (x *examination) show(e *env) error {
	return e.show(map[string]any{"checks": x.checks}, func(w *text) {
		for _, c := range x.checks {
			colour := map[string]colour{healthy: green, doubtful: yellow, sick: red}[c.Result]
			w.printf("%s  %-14s %s\n", e.paint(colour, fmt.Sprintf("%-11s", c.Result)), c.Name, c.Detail)
			if c.Advice != "" {
				w.printf("%-27s → %s\n", "", c.Advice)
			}
		}
	})
}

func (x *examination) examine(ctx context.Context, e *env) {
	begun := time.Now()
	s, err := e.operatedStore(ctx, x.config)
	switch _, embedded := sqlitePath(x.config.Store); {
	case err != nil && embedded && has[configError](err):
		x.add("store", doubtful, "it is made when the first node starts here", "%s does not exist", x.config.Store)
	case err != nil:
		x.add("store", sick, advice(err), "%v", err)
	default:
		x.store = s
		defer func() { _ = s.Close() }() // it was only looked at
		x.add("store", healthy, "", "%s opened in %s", x.config.storeName(), age(time.Since(begun)))
		x.schema(ctx)
		if !embedded {
			x.server(ctx)
		}
	}
	executors := x.peers(ctx)
	x.dialBack(ctx, executors)
}

// folders looks at those that data moves from and to.
func (x *examination) folders() {
	for _, r := range x.config.Dataflows.Roots {
		if err := r.look(); err != nil {
			x.add("folders", sick, "mount or make it; flows that need it fail until then", "root %s: %v", r.Name, err)
		} else {
			x.add("folders", healthy, "", "root %s is at %s", r.Name, r.Path)
		}
	}
}

func (x *examination) schema(ctx context.Context) {
	f, err := x.store.Fleet(ctx)
	if err != nil {
		x.add("schema", sick, advice(err), "%v", err)
		return
	}
	x.add("schema", healthy, "", "%d, admits binaries from schema %d on, cluster %q", f.Schema, f.MinBinary, f.Cluster)
}

// peers asks every executor that should be alive, and returns them.
func (x *examination) peers(ctx context.Context) []records.Executor {
	if x.store == nil {
		return nil
	}
	executors, err := x.store.ListExecutors(ctx, records.Active, records.Draining)
	if err != nil {
		x.add("peers", sick, advice(err), "%v", err)
		return nil
	}
	if len(executors) == 0 {
		x.add("peers", healthy, "", "no node is running")
	}
	for _, p := range executors {
		about := fmt.Sprintf("%s in slot %s at %s, heartbeat %s ago", p.ID, p.Slot, p.URL, age(p.HeartbeatAge))
		seen, err := ask(ctx, x.config, x.store, p, records.ID{}, 0)
		switch {
		case err != nil:
			x.add("peers", sick, advice(err), "%s: %v", about, err)
		case seen.Alive() && p.Stale():
			x.add("peers", sick, "its way to the store is cut, or its clock or the store's jumps: see its log", "%s: it answers, and its lease has run out", about)
		case seen.Alive():
			x.add("peers", healthy, "", "%s: it answers", about)
		case p.Stale():
			x.add("peers", doubtful, "if its process is gone, the next duplicate fences it", "%s: no answer (%s), and its lease has run out", about, seen.Verdict)
		case seen.Verdict == probe.Stranger:
			x.add("peers", sick, "each node needs an internal.advertise of its own, not a balancer's", "%s: another node answers there", about)
		default:
			x.add("peers", sick, "this host must reach the internal listener of every node; if that one runs, look at routes, firewalls, internal.allow, internal.token and internal.tls",
				"%s: %s: %v", about, seen.Verdict, seen.Err)
		}
	}
	return executors
}

// dialBack calls this node through its advertised URL: the node itself if it
// runs, else a listener that stands in for it.
func (x *examination) dialBack(ctx context.Context, running []records.Executor) {
	const name = "advertise"
	own := x.config.advertised(x.config.Internal.Listen)
	if u, err := url.Parse(own); err != nil || u.Port() == "0" {
		x.add(name, notChecked, "", "%s: its port is chosen at the start", own)
		return
	}
	for _, p := range running {
		if p.URL == own {
			x.add(name, healthy, "", "%s is the URL of a node that is registered: see peers", own)
			return
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", x.config.Internal.Listen)
	if err != nil {
		x.add(name, sick, "something else listens there: stop it, or choose another internal.listen", "%v", err)
		return
	}
	seen, err := x.standIn(ctx, l, own)
	switch {
	case err != nil:
		x.add(name, sick, "", "%v", err)
	case seen.Alive():
		x.add(name, healthy, "", "%s leads here", own)
	default:
		x.add(name, sick, "peers must reach internal.listen at internal.advertise: name this host's own address, and let internal.allow hold it",
			"%s does not lead to %s: %s: %v", own, l.Addr(), seen.Verdict, seen.Err)
	}
}

// standIn answers probes on l with a key made for it, and asks itself through
// the URL.
func (x *examination) standIn(ctx context.Context, l net.Listener, own string) (probe.Observation, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return probe.Observation{}, err
	}
	t, err := x.config.Internal.TLS.load()
	if err != nil {
		return probe.Observation{}, err
	}
	me := standIn{probe.Identity{Executor: records.ExecutorID(records.NewToken()), Slot: "doctor", Key: key}}
	asker, err := newAsker(x.config, t, nil)
	if err != nil {
		return probe.Observation{}, err
	}
	defer func() { _ = asker.Close() }() // it has no error
	h, err := probe.NewHandler(probe.HandlerConfig{
		Cluster: x.config.Cluster, Token: x.config.Internal.Token, Self: me, Runs: me, Node: me, Peers: me, Prober: asker,
	})
	if err != nil {
		return probe.Observation{}, err
	}
	server := probe.Server(h, t)
	ended := make(chan error, 1)
	go func() { ended <- new(node).serveOn(server, l) }()
	seen := asker.Probe(ctx, records.Executor{ID: me.id.Executor, Slot: me.id.Slot, URL: own, PublicKey: public}, records.ID{}, 0)
	return seen, errors.Join(server.Close(), <-ended)
}

// standIn is a node that runs nothing.
type standIn struct{ id probe.Identity }

// Identity implements [probe.Self].
func (s standIn) Identity() probe.Identity { return s.id }

// Entry implements [probe.Runs].
func (standIn) Entry(records.ID) (<-chan struct{}, bool) { return nil, false }

// Status implements [probe.Node].
func (s standIn) Status() probe.Status { return probe.Status{Executor: s.id.Executor, Slot: s.id.Slot} }

// Lookup implements [probe.Peers].
func (standIn) Lookup(records.ExecutorID) (records.Executor, bool) { return records.Executor{}, false }
