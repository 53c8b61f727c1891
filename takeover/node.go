package takeover

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// Asker asks executors; [probe.Client] is one.
type Asker interface {
	// Probe asks once, on a fresh connection.
	Probe(ctx context.Context, a records.Executor, id records.ID, epoch int64) probe.Observation
	// Watch asks on the shared connection and waits up to wait for the record
	// to leave the running set.
	Watch(ctx context.Context, a records.Executor, id records.ID, epoch int64, wait time.Duration) probe.Observation
	// Witness asks w what it sees of suspect.
	Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony
}

// Node is one process of the fleet: an executor, and a coordinator for the
// requests that reach it.
type Node struct {
	config Config
	store  records.Store
	asker  Asker
	log    *slog.Logger

	current     atomic.Pointer[boot]
	state       atomic.Pointer[records.ExecutorState]
	selfDialled atomic.Bool // this node has reached itself through its own URL

	peers    peers
	running  *runningSet
	flights  *flights
	waiters  waiters
	memory   memory
	confirms singleflight.Group // by executor
	fences   singleflight.Group // by executor
	sweeping chan struct{}      // a place for each record of a sweep

	sparedMu    sync.Mutex
	sparedUntil map[records.ExecutorID]time.Time

	leaving context.Context // ends when this node was told to drain
	drain   context.CancelCauseFunc
	ctx     context.Context // ends when duplicates wait no longer
	stop    context.CancelCauseFunc
	abort   context.Context // ends when Run gives up what is not settled
	aborted context.CancelCauseFunc
	wg      sync.WaitGroup // every goroutine of a flight, or of a sweep's records
}

// New builds a node. It starts nothing; see [Node.Run].
func New(config Config, store records.Store, asker Asker) (*Node, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		config: config, store: store, asker: asker, log: config.Logger,
		running: newRunningSet(), flights: newFlights(),
		waiters:     waiters{perKey: config.WaitersPerKey, perRealm: config.WaitersPerRealm, perNode: config.WaitersPerNode},
		memory:      memory{bytes: max(config.MemoryBytes, 0)},
		sweeping:    make(chan struct{}, sweepers),
		sparedUntil: map[records.ExecutorID]time.Time{},
	}
	n.leaving, n.drain = context.WithCancelCause(context.Background())
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	n.abort, n.aborted = context.WithCancelCause(context.Background())
	n.current.Store(newBoot(config.trust()))
	n.become(starting)
	return n, nil
}

// Drain makes Run return once everything this node runs is done.
func (n *Node) Drain() { n.drain(ErrStopped) }

// Entry reports whether this node runs the record, or may be running it, and a
// channel that is closed when it no longer does. The probe handler answers
// from it.
func (n *Node) Entry(id records.ID) (done <-chan struct{}, running bool) { return n.running.Entry(id) }

// Identity is who this node is now, and the key with which the probe handler
// signs. After a fence it is another one.
func (n *Node) Identity() probe.Identity {
	b := n.boot()
	return probe.Identity{Executor: b.id, Slot: n.config.Slot, Key: b.key}
}

// Lookup finds an active or draining executor in the list that this node's
// last heartbeat returned.
func (n *Node) Lookup(id records.ExecutorID) (records.Executor, bool) { return n.peers.lookup(id) }

// starting is the state of a node that is not registered, or was not yet
// reached at its URL. The store knows no such state.
const starting = records.ExecutorState("starting")

// Status reports where this node stands, from memory.
func (n *Node) Status() probe.Status {
	b := n.boot()
	return probe.Status{
		Executor: b.id, Slot: n.config.Slot, State: *n.state.Load(),
		InProgress: n.running.size(), HeartbeatAge: b.lease.age(), LeaseTTL: n.config.LeaseTTL,
	}
}

// answering reports whether keyed requests are answered here at all. A node
// that drains still replays and waits; the store refuses its claims.
func (n *Node) answering() bool {
	s := *n.state.Load()
	return (s == records.Active || s == records.Draining) && n.ctx.Err() == nil
}

func (n *Node) become(s records.ExecutorState) { n.state.Store(&s) }

func (n *Node) boot() *boot { return n.current.Load() }
