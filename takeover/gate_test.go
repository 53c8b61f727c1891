package takeover_test

import (
	"context"
	"sync/atomic"

	"github.com/probate-dev/probate/records"
)

// gate is a store that one node can be cut off from: while it is shut every
// call fails as an unreachable store does.
type gate struct {
	records.Store
	closed atomic.Bool
	writes atomic.Int64 // reserves, and everything that ends a record
	reads  atomic.Int64 // loads
}

func (g *gate) shut()       { g.closed.Store(true) }
func (g *gate) openAgain()  { g.closed.Store(false) }
func (g *gate) fail() error { return records.ErrUnavailable }

func (g *gate) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	if g.closed.Load() {
		return records.Executor{}, g.fail()
	}
	return g.Store.Heartbeat(ctx, id)
}

func (g *gate) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	if g.closed.Load() {
		return nil, g.fail()
	}
	return g.Store.ListExecutors(ctx, states...)
}

func (g *gate) Attest(ctx context.Context, id records.ExecutorID, proven bool) error {
	if g.closed.Load() {
		return g.fail()
	}
	return g.Store.Attest(ctx, id, proven)
}

func (g *gate) Fence(ctx context.Context, s records.Suspicion) (records.Executor, error) {
	if g.closed.Load() {
		return records.Executor{}, g.fail()
	}
	return g.Store.Fence(ctx, s)
}

func (g *gate) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	if g.closed.Load() {
		return records.Reserved{}, g.fail()
	}
	g.writes.Add(1)
	return g.Store.Reserve(ctx, r)
}

func (g *gate) Load(ctx context.Context, id records.ID) (records.Held, error) {
	if g.closed.Load() {
		return records.Held{}, g.fail()
	}
	g.reads.Add(1)
	return g.Store.Load(ctx, id)
}

func (g *gate) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	if g.closed.Load() {
		return records.Record{}, g.fail()
	}
	g.writes.Add(1)
	return g.Store.TakeOver(ctx, t)
}

func (g *gate) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	if g.closed.Load() {
		return g.fail()
	}
	g.writes.Add(1)
	return g.Store.Finalize(ctx, id, f, o)
}

func (g *gate) Release(ctx context.Context, id records.ID, f records.Fence) error {
	if g.closed.Load() {
		return g.fail()
	}
	g.writes.Add(1)
	return g.Store.Release(ctx, id, f)
}

func (g *gate) Drain(ctx context.Context, id records.ExecutorID) error {
	if g.closed.Load() {
		return g.fail()
	}
	return g.Store.Drain(ctx, id)
}

func (g *gate) Retire(ctx context.Context, id records.ExecutorID) error {
	if g.closed.Load() {
		return g.fail()
	}
	return g.Store.Retire(ctx, id)
}
