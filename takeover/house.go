package takeover

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// keepHouse does what nobody waits for: it has this node attested, takes over
// what dead executors left, looks for its own orphans, and purges. Each chore
// has its own interval, spread so that a fleet does not act in step, and none
// waits for another.
func (n *Node) keepHouse(ctx context.Context, b *boot) {
	var chores sync.WaitGroup
	defer chores.Wait()
	chores.Go(func() { every(ctx, 0, func() time.Duration { return n.attest(ctx, b) }) })
	chores.Go(func() {
		every(ctx, jitter(n.config.SweepEvery, 0.5), func() time.Duration {
			n.sweep(ctx, b)
			return jitter(n.config.SweepEvery, 0.2)
		})
	})
	chores.Go(func() {
		every(ctx, jitter(n.config.PurgeEvery, 0.5), func() time.Duration {
			n.purge(ctx)
			return jitter(n.config.PurgeEvery, 0.2)
		})
	})
}

// every does a chore again and again, after the times it asks for.
func every(ctx context.Context, first time.Duration, chore func() (next time.Duration)) {
	for next := first; sleep(ctx, next) == nil; {
		next = chore()
	}
}

// attest has a peer dial this node back, through the URL that the store
// holds, and makes the node serve once that worked. It returns when to do so
// again.
//
// Without a peer this node's own call through its URL must do to serve; it
// proves less, so the row stays unattested, and the first peer to appear is
// asked at once.
func (n *Node) attest(ctx context.Context, b *boot) time.Duration {
	soon := jitter(n.config.Heartbeat, 0.2)
	if n.peers.age() > n.config.LeaseTTL/2 {
		return soon // who the peers are is not known
	}
	peers := n.peers.alive(n.config.Slot)
	if len(peers) == 0 {
		n.reachSelf(ctx, b)
		return soon
	}
	proven := n.dialledBack(ctx, b, peers)
	if ctx.Err() != nil {
		return soon
	}
	if !proven {
		n.log.WarnContext(ctx, "no peer reaches this node at its URL", "url", n.config.URL, "peers", len(peers))
	}
	if proven || b.attested.Load() { // a failure nulls only what was proven
		limit, cancel := context.WithTimeout(ctx, n.config.StatementTimeout)
		defer cancel()
		if err := n.store.Attest(limit, b.id, proven); err != nil {
			n.complain(ctx, "attest", err)
			return soon
		}
		b.attested.Store(proven)
	}
	if !proven {
		return soon
	}
	n.serve(b)
	return jitter(n.config.AttestEvery, 0.1)
}

// maxDialBacks is how many peers are asked before this node counts as out of
// reach.
const maxDialBacks = 3

func (n *Node) dialledBack(ctx context.Context, b *boot, peers []records.Executor) bool {
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for _, p := range peers[:min(len(peers), maxDialBacks)] {
		// Alive is not enough: what came through a proxy was signed too, and
		// proves nothing of the address.
		if t := n.asker.Witness(ctx, p, b.id); t.Heard.Alive() && t.Saw.Signed() {
			return true
		}
	}
	return false
}

func (n *Node) reachSelf(ctx context.Context, b *boot) {
	if !n.selfDialled.Load() {
		seen := n.asker.Probe(ctx, n.self(b), records.ID{}, 0)
		n.selfDialled.Store(seen.Verdict.Signed())
	}
	if !n.selfDialled.Load() {
		n.log.WarnContext(ctx, "this node cannot reach itself at its URL", "url", n.config.URL)
		return
	}
	n.serve(b)
}

// serve makes the node ready, if it was starting.
func (n *Node) serve(b *boot) {
	b.ready.Store(true)
	if *n.state.Load() == starting {
		n.become(records.Active)
		n.log.Info("serving", "executor", b.id, "attested", b.attested.Load())
	}
}

// purge deletes expired records and old events; then executors that nobody
// remembers.
func (n *Node) purge(ctx context.Context) {
	n.purgeAll(ctx, "purge", func(limit int) (int, error) {
		count, err := n.store.Purge(ctx, limit)
		if err == nil {
			n.config.Events.Purged(count)
		}
		return count, err
	})
	n.purgeAll(ctx, "purge events", func(limit int) (int, error) {
		return n.store.PurgeEvents(ctx, n.config.EventRetention, limit)
	})
	if _, err := n.store.PurgeExecutors(ctx, executorMemory); err != nil {
		n.complain(ctx, "purge executors", err)
	}
}

// purgeAll deletes a statement at a time, until one finds less than it may
// delete.
func (n *Node) purgeAll(ctx context.Context, what string, purge func(limit int) (int, error)) {
	for ctx.Err() == nil {
		count, err := purge(n.config.PurgeBatch)
		if err != nil {
			n.complain(ctx, what, err)
		}
		if err != nil || count < n.config.PurgeBatch {
			return
		}
	}
}

// executorMemory is how long a terminal executor is remembered at least.
const executorMemory = 24 * time.Hour

// complain logs that a call of the store failed, unless ctx was ended.
func (n *Node) complain(ctx context.Context, call string, err error) {
	if ctx.Err() == nil {
		n.log.WarnContext(ctx, "store call failed", "call", call, "error", err)
	}
}
