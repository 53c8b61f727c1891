package takeover

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// peers is the fleet as this node's last heartbeat found it. The probe handler
// looks executors up here and never in the store.
type peers struct {
	mu   sync.Mutex
	all  map[records.ExecutorID]peer
	read time.Time
}

type peer struct {
	records.Executor
	since time.Time // when its present beat was first seen, by this process' clock
}

// learn replaces the list.
func (p *peers) learn(rows []records.Executor, now time.Time) {
	all := make(map[records.ExecutorID]peer, len(rows))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range rows {
		since := now
		if old, ok := p.all[row.ID]; ok && old.Beat == row.Beat {
			since = old.since
		}
		all[row.ID] = peer{Executor: row, since: since}
	}
	p.all, p.read = all, now
}

// age is how long ago the list was read; very long if it never was.
func (p *peers) age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.read)
}

// database is the store's time now, rather a little late than early; zero
// before the fleet was read. This process' wall clock has no part in it.
func (p *peers) database() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.all {
		return e.HeartbeatAt.Add(e.HeartbeatAge + time.Since(p.read))
	}
	return time.Time{}
}

// lookup finds an active or draining executor.
func (p *peers) lookup(id records.ExecutorID) (records.Executor, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.all[id]
	return found.Executor, ok
}

// unchanged reports whether the executor has shown this beat for longer than
// its lease, by this process' clock.
func (p *peers) unchanged(e records.Executor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.all[e.ID]
	return ok && found.Beat == e.Beat && time.Since(found.since) > e.LeaseTTL
}

// Peers lists the fleet with the ages that its heartbeats have by now.
func (p *peers) Peers() []records.Executor {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.read)
	list := make([]records.Executor, 0, len(p.all))
	for _, e := range p.all {
		e.HeartbeatAge += age
		list = append(list, e.Executor)
	}
	return list
}

// alive lists the active executors, but for those of one slot, that have
// beaten within half their lease: the only ones whose word counts.
func (p *peers) alive(but string) []records.Executor {
	return slices.DeleteFunc(p.Peers(), func(e records.Executor) bool {
		return e.State != records.Active || e.Slot == but || e.HeartbeatAge > e.LeaseTTL/2
	})
}

// followFleet reads the fleet after every heartbeat, and beside them: a list
// that is slow must not hold up the next.
func (n *Node) followFleet(ctx context.Context, b *boot) {
	for {
		select {
		case <-b.landed:
			n.learnPeers(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// learnPeers reads the fleet. If it cannot, the old list grows older and its
// members stop counting as alive.
func (n *Node) learnPeers(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, n.config.StatementTimeout)
	defer cancel()
	rows, err := n.store.ListExecutors(limit, records.Active, records.Draining)
	if err != nil {
		n.complain(ctx, "list executors", err)
		return
	}
	n.peers.learn(rows, time.Now())
}

// informed asks as the node's asker does. When an answer claims to be from an
// executor that the list does not know, it may be a boot that has registered
// since the last heartbeat: the list is read and the question asked again.
type informed struct{ *Node }

// relearn bounds how often an unproven claim makes this node read the list.
const relearn = 50 * time.Millisecond

// Probe asks, and asks again if it has learned of somebody new.
func (n informed) Probe(ctx context.Context, a records.Executor, id records.ID, epoch int64) probe.Observation {
	o := n.asker.Probe(ctx, a, id, epoch)
	if o.Claimed == (records.ExecutorID{}) || n.peers.age() < relearn {
		return o
	}
	n.learnPeers(ctx)
	return n.asker.Probe(ctx, a, id, epoch)
}

// Witness asks w what it sees of suspect.
func (n informed) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony {
	return n.asker.Witness(ctx, w, suspect)
}

// recent is the list of peers for an inquiry. It is read anew when it is not
// from just now, for a node that has not registered has no heartbeat to do so.
type recent struct {
	node  *Node
	ctx   context.Context // of the inquiry
	known bool            // the list was young when it was last asked for
}

// Peers lists the fleet.
func (r *recent) Peers() []records.Executor {
	n := r.node
	limit := min(n.config.Heartbeat, n.config.LeaseTTL/4)
	if n.peers.age() > limit {
		n.learnPeers(r.ctx)
	}
	r.known = n.peers.age() <= n.config.LeaseTTL/4
	return n.peers.Peers()
}
