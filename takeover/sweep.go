package takeover

import (
	"context"
	"time"

	"github.com/probate-dev/probate/records"
)

// sweepers is how many records of sweeps are recovered at once.
const sweepers = 4

// sweep recovers records that nobody asks for: those of dead executors, and
// this executor's own orphans. It takes over only operations it knows, so it
// pages past those it must skip, and at most a batch a time.
//
// It returns when it has begun the last of them. What it began is in the
// running set, like anything else that this node executes.
func (n *Node) sweep(ctx context.Context, b *boot) {
	left := n.config.SweepBatch
	for h := range n.orphans(ctx, b) {
		terms, work, known := n.config.Recover(h.Record)
		if !known {
			continue
		}
		select {
		case n.sweeping <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if !b.mayClaim() {
			<-n.sweeping
			return
		}
		n.running.enter(h.Record.ID)
		n.wg.Go(func() {
			n.recoverAlone(context.WithoutCancel(ctx), b, h, terms, work)
			n.running.leave(h.Record.ID)
			<-n.sweeping
		})
		if left--; left == 0 {
			return
		}
	}
}

// orphans walks, a page at a time, this executor's records that are not in
// its running set, then the in-progress records of terminal executors.
func (n *Node) orphans(ctx context.Context, b *boot) func(yield func(records.Held) bool) {
	own := func(after records.ID) ([]records.Record, error) {
		return n.store.InProgress(ctx, b.id, after, n.config.SweepBatch)
	}
	others := func(after records.ID) ([]records.Record, error) {
		return n.store.Orphans(ctx, after, n.config.SweepBatch)
	}
	return func(yield func(records.Held) bool) {
		// A record is loaded before it is taken over: with its executor, and when
		// that was fenced; and one that cannot be read stays where it is.
		standing := func(r records.Record) (goOn bool) {
			h, err := n.store.Load(ctx, r.ID)
			return err != nil || h.Record.Fence() != r.Fence() || yield(h)
		}
		for r := range n.pages(ctx, own) {
			if _, running := n.running.Entry(r.ID); !running && !standing(r) {
				return
			}
		}
		for r := range n.pages(ctx, others) {
			if !standing(r) {
				return
			}
		}
	}
}

func (n *Node) pages(ctx context.Context, read func(after records.ID) ([]records.Record, error)) func(yield func(records.Record) bool) {
	return func(yield func(records.Record) bool) {
		var after records.ID
		for {
			page, err := read(after)
			if err != nil {
				n.complain(ctx, "sweep", err)
				return
			}
			for _, r := range page {
				if !yield(r) {
					return
				}
				after = r.ID
			}
			if len(page) < n.config.SweepBatch {
				return
			}
		}
	}
}

// recoverAlone takes the record over without a client; the running set has its
// entry already. Without work that can
// be repeated nothing is executed: applied is finalized, not applied released.
func (n *Node) recoverAlone(ctx context.Context, b *boot, h records.Held, terms Terms, work Work) {
	r := h.Record
	t := records.TakeOver{ID: r.ID, From: r.Fence(), By: b.id, Attempt: records.NewToken()}
	won, err := definite(n.abort, n, func(ctx context.Context) (records.Record, error) { return n.store.TakeOver(ctx, t) })
	if err != nil {
		return // somebody was faster, or this node may not
	}
	n.log.WarnContext(ctx, "took over", "record", won.ID, "from", r.Fence(), "epoch", won.Epoch, "takeovers", won.Takeovers, "reason", "sweep")
	n.config.Events.TookOver(won, "sweep")
	tenure := &tenure{
		node: n, boot: b, claim: Claim{Record: won, Previous: r.Fence(), Erased: erased(won)}, work: work,
		request: requestOf(won, terms),
		begun:   time.Now(), ended: endOf(h.Executor, time.Time{}), ctx: ctx,
	}
	tenure.serve()
}
