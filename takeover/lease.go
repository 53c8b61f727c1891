package takeover

import (
	"context"
	"sync"
	"time"
)

// lease is this process' own belief that its executor is alive for others. It
// ends earlier than theirs: its time counts from before the heartbeat was
// sent, and a margin is taken off. Work runs under its context.
type lease struct {
	trust Trust

	mu      sync.Mutex
	sent    time.Time // when the last good heartbeat was sent
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	ended   error         // why it can never be renewed; nil while it can
	renewed chan struct{} // closed, and replaced, by every renewal and by the end
}

// newLease returns a lease that has not begun: its context has ended.
func newLease(trust Trust) *lease {
	l := &lease{trust: trust, renewed: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.cancel(ErrLeaseLost)
	return l
}

// renew counts a heartbeat that the store acknowledged. One whose reply came
// after its own end renews nothing.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.trust.LeaseTTL - l.trust.Margin - elapsed(sent)
	if l.ended != nil || left <= 0 || sent.Before(l.sent) {
		return
	}
	l.sent = sent
	if l.ctx.Err() != nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(left, l.check)
	} else {
		l.timer.Reset(left)
	}
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// check ends the context if its time has run out by either clock. A machine
// that was suspended may show the gap on the wall clock only.
func (l *lease) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	if left := l.trust.LeaseTTL - l.trust.Margin - elapsed(l.sent); left > 0 {
		l.timer.Reset(left) // renewed meanwhile, or a clock was set back
		return
	}
	l.cancel(ErrLeaseLost)
}

// end ends the lease for good. The first cause stays.
func (l *lease) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = cause
	l.cancel(cause)
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// held reports whether work may go on now.
func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended == nil && l.trust.MayRun(elapsed(l.sent))
}

// age is how long ago the last good heartbeat was sent.
func (l *lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return elapsed(l.sent)
}

// awaitStart returns the context for work that may begin now. If the last
// heartbeat is too old to begin, it waits for the next: beat first, then
// start; no longer than patience, unless that is zero. The error is why it will
// not come.
func (l *lease) awaitStart(ctx context.Context, patience time.Duration, kick func()) (context.Context, error) {
	if work, _, err := l.start(); work != nil || err != nil {
		return work, err
	}
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	for {
		work, renewed, err := l.start()
		if work != nil || err != nil {
			return work, err
		}
		kick()
		select {
		case <-renewed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// start is the context for work that may begin now; none if it may not, and
// then what says when to try again, or why that is of no use.
func (l *lease) start() (work context.Context, renewed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return nil, nil, l.ended
	}
	if l.trust.MayStart(elapsed(l.sent)) && l.ctx.Err() == nil {
		return l.ctx, nil, nil
	}
	return nil, l.renewed, nil
}

// elapsed is the larger of what the monotonic and the wall clock say. A wall
// clock that is set back is ignored, one that is set forward ends trust early.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
