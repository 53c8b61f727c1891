package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// takeOver moves the record to this node. The running set knows of it before
// the store does.
func (c *course) takeOver(signed bool) *landing {
	n, from := c.node, c.held.Record.Fence()
	t := records.TakeOver{ID: c.flight.id, From: from, By: n.boot().id, Attempt: records.NewToken(), SignedNotRunning: signed}
	reason := "executor " + string(c.held.Executor.State)
	switch {
	case signed:
		reason = "not running"
	case from.Executor == t.By:
		reason = "orphan"
	}
	return c.claim(reason, from, func(ctx context.Context) (records.Record, error) { return n.store.TakeOver(ctx, t) })
}

// claimUnknown takes a record of unknown outcome, to ask its reconciler. If that
// cannot tell either, nothing was learned: the record is forgotten when it would
// have been, however often somebody asks.
func (c *course) claimUnknown() *landing {
	n, r := c.node, c.held.Record
	u := records.UnknownClaim{ID: r.ID, Epoch: r.Epoch, By: n.boot().id, Attempt: records.NewToken()}
	landed := c.claim("outcome unknown", r.Fence(), func(ctx context.Context) (records.Record, error) { return n.store.ClaimUnknown(ctx, u) })
	if c.tenure != nil {
		c.tenure.forget = r.ExpiresAt
	}
	return landed
}

// claim wins a tenure of the record, or reads who did.
func (c *course) claim(reason string, from records.Fence, call func(ctx context.Context) (records.Record, error)) *landing {
	n, b := c.node, c.node.boot()
	n.running.enter(c.flight.id)
	won, err := definite(n.abort, n, call)
	if err == nil {
		c.tenure = c.take(b, Claim{Record: restored(won, c.flight.request), Previous: from, Erased: erased(won)})
		c.tenure.ended = endOf(c.held.Executor, c.trail.notRunning)
		c.tenure.order = c.order
		c.order.won(won)
		n.log.WarnContext(c.ctx, "took over", "record", won.ID, "from", from, "epoch", won.Epoch, "takeovers", won.Takeovers, "reason", reason)
		n.config.Events.TookOver(won, reason)
		return nil
	}
	n.running.leave(c.flight.id)
	switch {
	case errors.Is(err, records.ErrFenced): // somebody was faster
		return c.reread()
	case errors.Is(err, records.ErrNotActive):
		b.kick()
		return c.pause()
	}
	return &landing{err: fmt.Errorf("take over: %w", err)}
}

// endOf is when a predecessor can last have begun a request: when it signed
// that it was not running, or else when it was fenced, by the database's
// clock. What is not known counts from now.
func endOf(e records.Executor, notRunning time.Time) time.Time {
	now := time.Now()
	switch {
	case !notRunning.IsZero():
		return notRunning
	case e.State != records.Fenced || e.FencedAt.IsZero():
		return now
	}
	databaseNow := e.HeartbeatAt.Add(e.HeartbeatAge)
	return now.Add(-max(databaseNow.Sub(e.FencedAt), 0))
}
