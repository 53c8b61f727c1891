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
// callbacks, looks for flows that nobody runs, and forgets old ones. It should
// outlive the coordinator's Run, whose work tells its progress here.
func (p *Plane) Run(ctx context.Context) error {
	var chores sync.WaitGroup
	chores.Go(func() { p.ledger.keep(ctx) })
	chores.Go(func() { p.deliver(ctx) })
	chores.Go(func() { p.register(ctx) })
	chores.Go(func() { p.every(ctx, p.config.StrayEvery, p.gather) })
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
// is repeated.
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
			if errors.As(p.admit(), new(*problem)) {
				return // others may have a place
			}
			if p.running(f.ID) != nil || !p.knows(f) {
				continue
			}
			if _, err := p.ensure(ctx, f.ID, startPatience); err != nil {
				p.complain(ctx, "run a stray", err)
			}
		}
		if len(strays) < strayBatch {
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
