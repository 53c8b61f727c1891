package takeover

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/probate-dev/probate/records"
)

// tenure is this node's hold on one record at one epoch: from the claim until
// its last write is settled. The running set knows of it all that time.
type tenure struct {
	node    *Node
	boot    *boot
	claim   Claim
	request Request
	work    Work            // nil: not at hand
	first   bool            // a first claim: nobody has begun anything
	ended   time.Time       // when the predecessor can last have begun a request
	begun   time.Time       // when this node was told that the record is its own
	ctx     context.Context // the caller's values; it never ends
	started bool            // the work, here
	forget  time.Time       // when the store would have forgotten that nobody can tell; zero: nothing was unknown
	order   *order          // what an operator asked for, where no client asks
}

// ending is what became of a tenure.
type ending struct {
	record     records.Record // its State is how it ended; InProgress: not settled here
	lost       bool           // with InProgress: the fence no longer held
	unstarted  bool           // with Released: the work was not begun
	outcome    OutcomeKind
	completion Completion
}

// take begins a tenure for the flight. The running set has its entry already.
func (c *course) take(b *boot, claim Claim) *tenure {
	now := time.Now()
	return &tenure{node: c.node, boot: b, claim: claim, request: c.flight.request, work: c.flight.work, ctx: c.ctx, ended: now, begun: now}
}

// serve executes or recovers, and settles.
func (t *tenure) serve() ending {
	if !t.first {
		return t.recover(t.work)
	}
	c, started := t.execute(t.work)
	e := t.conclude(c, Executed)
	e.unstarted = !started
	return e
}

// execute runs the work, once, if it may still start.
func (t *tenure) execute(work Work) (c Completion, started bool) {
	n := t.node
	lease, err := t.boot.awaitStart(n.abort, n.config.LeaseTTL)
	if err != nil {
		return Completion{Kind: Untouched, Reason: fmt.Sprintf("not started: %v", err)}, false
	}
	ctx, stop := t.under(lease, t.request.Terms.WorkTimeout, ErrWorkTimeout)
	defer stop()
	t.started = true
	done := make(chan Completion, 1)
	go guarded(ctx, work, done)
	select {
	case c = <-done:
		return c, true
	case <-ctx.Done():
	}
	// It must return now. If it does not, the key must not stay stuck with it:
	// the record ends unknown, while the entry says what is true.
	overdue := time.NewTimer(n.config.Margin)
	defer overdue.Stop()
	select {
	case c = <-done:
		return c, true
	case <-overdue.C:
		n.log.ErrorContext(t.ctx, "work does not return", "record", t.claim.Record.ID, "cause", context.Cause(ctx))
		n.running.enter(t.claim.Record.ID)
		n.wg.Go(func() {
			select {
			case <-done:
				n.running.leave(t.claim.Record.ID)
			case <-n.abort.Done(): // the entry stays: it is still true
			}
		})
		return Completion{overdue: true, Reason: fmt.Sprintf("work did not return after: %v", context.Cause(ctx))}, true
	}
}

// under is a context with the caller's values that ends with the lease, or
// after the timeout with its cause.
func (t *tenure) under(lease context.Context, timeout time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(withClaim(t.ctx, lease, t.claim, t.boot))
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, timeout, cause)
	unhook := context.AfterFunc(lease, func() { cancel(context.Cause(lease)) })
	return ctx, func() {
		unhook()
		cancelTimeout()
		cancel(nil)
	}
}

// guarded runs work and tells what it came to, however it ends.
func guarded(ctx context.Context, work Work, done chan<- Completion) {
	c := Completion{Reason: "work ended its goroutine"}
	defer func() { done <- c }()
	defer func() {
		if p := recover(); p != nil {
			c = Completion{Reason: fmt.Sprintf("work panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	c = work(ctx)
}

// conclude writes what the work came to.
func (t *tenure) conclude(c Completion, outcome OutcomeKind) ending {
	e := ending{outcome: outcome, completion: c}
	switch c.Kind {
	case Completed:
		return t.settle(e, records.Finalized, func(ctx context.Context) error { return t.finalize(ctx, c.Response) })
	case Committed:
		return t.settled(e, records.Finalized)
	case Untouched:
		return t.settle(e, records.Released, t.release)
	case Uncertain:
	}
	t.node.log.WarnContext(t.ctx, "outcome uncertain", "record", t.claim.Record.ID, "epoch", t.claim.Record.Epoch, "reason", c.Reason)
	if c.overdue || t.request.Terms.Reconciler == nil { // overdue: no finding holds while it may still send
		return t.settle(e, records.Unknown, t.markUnknown)
	}
	t.ended = time.Now()
	found := t.recover(nil)
	if found.record.State != records.Finalized { // the work's own answer is the best there is
		c.Reason = joinReasons(c.Reason, found.completion.Reason)
		found.outcome, found.completion = outcome, c
	}
	return found
}

// recover finds out what became of an interrupted execution, and does with it
// what [Recover] says. Without work nothing is executed.
func (t *tenure) recover(work Work) ending {
	r := Recovery{Takeovers: t.claim.Record.Takeovers, Limit: t.node.config.Takeovers, Work: work != nil}
	if t.order != nil { // the limit keeps work from being begun again and again; nothing is begun here
		r.Limit = max(r.Limit, r.Takeovers)
	}
	late := time.Now().Add(t.request.Terms.WorkTimeout)
	pace := t.node.pace()
	var found Finding
	for {
		r.Late = !time.Now().Before(late)
		settles := time.Until(t.ended.Add(t.request.Terms.Settle))
		if !r.Asked { // what counts is when the question was asked: the effect may land before its answer
			r.Settling = settles > 0
		}
		switch Recover(r) {
		case Ask:
			var ended error
			before := found.Reason
			if found, ended = t.ask(late); ended != nil {
				// Left to others. Those who fenced this executor may have taken it
				// already, and the caller waits for what they make of it.
				return ending{record: t.claim.Record, lost: errors.Is(ended, ErrExecutorFenced)}
			}
			if found.Kind == Pending && !time.Now().Before(late) && found.Reason != before {
				found.Reason = joinReasons(before, found.Reason) // the last question was cut off; the one before says more
			}
			r.Asked, r.Finding = true, found.Kind
			t.order.hear(found)
		case AskLater:
			r.Asked = false
			wait := pace.NextBackOff()
			if found.Kind == NotApplied {
				wait = min(wait, max(settles, 0))
			} else if found.After > 0 {
				wait = found.After
			}
			if !t.idle(min(wait, max(time.Until(late), 0))) {
				return ending{record: t.claim.Record}
			}
		case Finish:
			return t.settle(ending{outcome: Reconciled, completion: Completion{Kind: Completed, Response: found.Response}},
				records.Finalized, func(ctx context.Context) error { return t.finalize(ctx, found.Response) })
		case Execute:
			c, started := t.execute(work)
			if !started {
				return ending{record: t.claim.Record}
			}
			return t.conclude(c, TookOver)
		case Free:
			return t.settle(ending{outcome: Reconciled}, records.Released, t.release)
		case GiveUp:
			why := found.because(r)
			t.node.log.WarnContext(t.ctx, "nobody can tell", "record", t.claim.Record.ID, "epoch", t.claim.Record.Epoch, "reason", why)
			return t.settle(ending{outcome: OutcomeUnknown, completion: Completion{Reason: why}}, records.Unknown, t.markUnknown)
		}
	}
}

// idle waits, and reports whether there is still a reason to go on: this node
// has neither stopped nor been fenced.
func (t *tenure) idle(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.boot.fenced:
	case <-t.node.ctx.Done():
	}
	return false
}

// ask asks the reconciler once, under the lease and until the deadline.
// Whatever is not an answer in time is Pending. The error is why it was not
// asked: this boot has ended.
func (t *tenure) ask(deadline time.Time) (f Finding, ended error) {
	r := t.claim.Record
	if t.request.Terms.Reconciler == nil {
		return FoundUndecidable("no reconciler"), nil
	}
	lease, err := t.boot.awaitStart(t.node.ctx, 0)
	if err != nil {
		return Finding{}, err
	}
	ctx, stop := t.under(lease, time.Until(deadline), ErrWorkTimeout)
	defer stop()
	if f, err = t.inquire(ctx); err != nil {
		t.node.log.WarnContext(t.ctx, "reconciler failed", "record", r.ID, "epoch", r.Epoch, "error", err)
		f = Finding{Kind: Pending, Reason: err.Error()}
	}
	t.node.config.Events.Reconciled(r, f)
	return f, nil
}

// inquire calls the reconciler. It does not wait for one that ignores its
// context for longer than the margin.
func (t *tenure) inquire(ctx context.Context) (Finding, error) {
	type reply struct {
		finding Finding
		err     error
	}
	replied := make(chan reply, 1)
	go func() {
		a := reply{err: errGoroutineEnded}
		defer func() {
			if p := recover(); p != nil {
				t.node.log.ErrorContext(t.ctx, "reconciler panicked", "record", t.claim.Record.ID, "panic", p, "stack", string(debug.Stack()))
				a = reply{err: fmt.Errorf("reconciler panicked: %v", p)}
			}
			replied <- a
		}()
		f, err := t.request.Terms.Reconciler.Reconcile(ctx, t.claim.Record, t.request)
		a = reply{f, err}
	}()
	var a reply
	select {
	case a = <-replied:
	case <-ctx.Done():
		overdue := time.NewTimer(t.node.config.Margin)
		defer overdue.Stop()
		select {
		case a = <-replied:
		case <-overdue.C:
		}
	}
	switch {
	case a.err != nil:
		return Finding{}, a.err
	case ctx.Err() != nil:
		return Finding{}, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
	return a.finding, a.finding.validate()
}

// settle writes the record's new state until the store took it or the fence
// refused it: a result is kept through an outage, however long.
func (t *tenure) settle(e ending, to records.State, write func(ctx context.Context) error) ending {
	n, r := t.node, t.claim.Record
	_, err := definite(n.abort, n, func(ctx context.Context) (struct{}, error) { return struct{}{}, write(ctx) })
	switch {
	case err == nil:
		return t.settled(e, to)
	case errors.Is(err, records.ErrFenced):
		n.log.WarnContext(t.ctx, "overtaken", "record", r.ID, "epoch", r.Epoch, "state", to)
		return ending{record: r, lost: true}
	case to != records.Unknown && n.abort.Err() == nil:
		n.log.ErrorContext(t.ctx, "result cannot be stored", "record", r.ID, "state", to, "error", err)
		return t.settle(e, records.Unknown, t.markUnknown)
	}
	n.log.ErrorContext(t.ctx, "record left in progress", "record", r.ID, "error", err)
	return ending{record: r}
}

func (t *tenure) finalize(ctx context.Context, r records.Response) error {
	if t.claim.Erased {
		r = records.Response{Status: r.Status}
	}
	o := records.Outcome{Response: r, Retention: t.request.Terms.Retention}
	return t.node.store.Finalize(ctx, t.claim.Record.ID, t.claim.Record.Fence(), o)
}

func (t *tenure) release(ctx context.Context) error {
	return t.node.store.Release(ctx, t.claim.Record.ID, t.claim.Record.Fence())
}

func (t *tenure) markUnknown(ctx context.Context) error {
	return t.node.store.MarkUnknown(ctx, t.claim.Record.ID, t.claim.Record.Fence(), t.unknownRetention())
}

// unknownRetention is how long to remember that nobody can tell: as long as
// before, where that is all that was found out again.
func (t *tenure) unknownRetention() time.Duration {
	full, now := t.request.Terms.UnknownRetention, t.node.peers.database()
	if t.started || t.forget.IsZero() || now.IsZero() {
		return full
	}
	return min(max(t.forget.Sub(now), 0), full)
}

// settled is the record as this node has just written it. Its times are this
// node's; the store's differ by what the clocks differ.
func (t *tenure) settled(e ending, to records.State) ending {
	e.record = t.claim.Record
	e.record.State, e.record.FinalizedAt = to, time.Now()
	switch to {
	case records.Finalized:
		e.record.Response = &e.completion.Response
		e.record.ExpiresAt = e.record.FinalizedAt.Add(t.request.Terms.Retention)
	case records.Unknown:
		e.record.ExpiresAt = e.record.FinalizedAt.Add(t.unknownRetention())
	case records.Released, records.InProgress:
	}
	t.node.config.Events.Settled(e.record, to, time.Since(t.begun), e.completion.Reason)
	return e
}
