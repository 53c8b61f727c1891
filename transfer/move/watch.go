package move

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// guard is the life of a body or a part: a context that ends with the copy's,
// or when the end was busy for too long without moving a byte. To say that a
// byte moved costs a clock reading, so it can be said for every one of them.
type guard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	at     End
	limit  time.Duration
	timer  *time.Timer

	born time.Time
	last atomic.Int64 // when a byte last moved, since born
	busy atomic.Bool
}

func newGuard(parent context.Context, at End, limit time.Duration) (context.Context, *guard) {
	ctx, cancel := context.WithCancelCause(parent)
	g := &guard{ctx: ctx, cancel: cancel, at: at, limit: limit, born: time.Now()}
	// Armed only when g is complete: a short limit must not find it half made.
	g.timer = time.AfterFunc(time.Hour, g.check)
	g.timer.Reset(limit)
	return ctx, g
}

// enter says that the end has something to do now, leave that it has done it.
func (g *guard) enter() {
	g.moved()
	g.busy.Store(true)
}

func (g *guard) leave() { g.busy.Store(false) }

// moved says that a byte moved. It may be called by any goroutine.
func (g *guard) moved() { g.last.Store(int64(time.Since(g.born))) }

// check runs when the end may have been silent for the limit, ends its life if
// it was, and else comes back when it may be.
func (g *guard) check() {
	if g.ctx.Err() != nil {
		return
	}
	left := g.limit
	if g.busy.Load() {
		left -= time.Since(g.born) - time.Duration(g.last.Load())
	}
	if left <= 0 {
		g.cancel(&Fault{End: g.at, Kind: ErrStalled, Transient: true, Err: fmt.Errorf("nothing moved for %v", g.limit)})
		return
	}
	g.timer.Reset(left)
}

// stop ends the life. What still uses the context sees it cancelled.
func (g *guard) stop() {
	g.cancel(nil)
	g.timer.Stop()
}
