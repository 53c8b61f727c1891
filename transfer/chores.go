package transfer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// Run does what nobody waits for until ctx ends: it writes progress, delivers
// callbacks, prepares flows, looks for those that nobody runs or has prepared,
// and forgets old ones. It should
// outlive the coordinator's Run, whose work tells its progress here.
func (p *Plane) Run(ctx context.Context) error {
	var chores sync.WaitGroup
	chores.Go(func() { p.ledger.keep(ctx) })
	chores.Go(func() { p.deliver(ctx) })
	chores.Go(func() { p.register(ctx) })
	chores.Go(func() { p.prepareAll(ctx) })
	chores.Go(func() { p.every(ctx, p.config.StrayEvery, p.gather) })
	chores.Go(func() { p.every(ctx, p.config.StrayEvery, p.untangle) })
	chores.Go(func() { p.every(ctx, purgeEvery, p.purge) })
	<-ctx.Done()
	chores.Wait()
	return nil
}

const (
	purgeEvery = time.Minute
	purgeBatch = 500
	strayBatch = 100
)

// every does a chore again and again, spread so that a fleet does not act in
// step.
func (p *Plane) every(ctx context.Context, interval time.Duration, chore func(ctx context.Context)) {
	for sleep(ctx, interval/2+rand.N(interval)) { //nolint:gosec // spread, not secret
		chore(ctx)
	}
}

// gather has flows moved that no live executor has: their node died and nobody
// asked, or it left, or lost its lease. Each goes the same way as a start that
// is repeated. What a node has left that was preparing it is prepared.
func (p *Plane) gather(ctx context.Context) {
	after := ""
	for !p.left() {
		strays, err := p.store.StrayFlows(ctx, p.config.StrayEvery, after, strayBatch)
		if err != nil {
			p.complain(ctx, "read strays", err)
			return
		}
		for _, f := range strays {
			after = f.ID
			if f.State == records.FlowPreparing {
				p.prepareSoon(f.ID)
				continue
			}
			leave, err := p.admit()
			if err != nil {
				continue // others may have a place
			}
			leave() // it is one after the other here
			if p.running(f.ID) != nil || f.Wanted == "" && !p.knows(f) {
				continue
			}
			if _, err := p.ensure(ctx, f.ID, startPatience); err != nil {
				p.complain(ctx, "run a stray", err)
			}
		}
		if len(strays) == 0 { // a page may be short, where messages cannot be opened
			return
		}
	}
}

// untangle lets go of the records of dead executors whose flow does not run any
// more: a sweep leaves flows alone, and nobody else would ask for them.
func (p *Plane) untangle(ctx context.Context) {
	var after records.ID
	for !p.left() {
		orphans, err := p.store.Orphans(ctx, after, strayBatch)
		if err != nil {
			p.complain(ctx, "read orphans", err)
			return
		}
		for _, r := range orphans {
			after = r.ID
			if r.Realm != realm || r.Operation != operation {
				continue
			}
			held, err := p.store.LoadFlow(ctx, r.Key)
			if err == nil {
				err = p.free(ctx, held)
			}
			if err != nil {
				p.complain(ctx, "let go of a record", err)
			}
		}
		if len(orphans) < strayBatch {
			return
		}
	}
}

// knows reports whether this node can do a flow's work. While a new catalogue
// is rolled out, one that does not know a dataset yet must not fail its flows.
func (p *Plane) knows(f records.Flow) bool {
	t, err := taskOf(f.Message)
	return err == nil && p.possible(t) == nil
}

func (p *Plane) purge(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := p.store.PurgeFlows(ctx, p.config.Retention, purgeBatch)
		if err != nil {
			p.complain(ctx, "purge flows", err)
			return
		}
		if n < purgeBatch {
			return
		}
	}
}

func (p *Plane) complain(ctx context.Context, chore string, err error) {
	if ctx.Err() == nil && !errors.Is(err, records.ErrFenced) {
		p.log.WarnContext(ctx, "chore failed", "chore", chore, "error", err)
	}
}
