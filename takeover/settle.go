package takeover

import (
	"context"
	"errors"

	"github.com/probate-dev/probate/records"
)

// reserved is what a reserve came to.
type reserved struct {
	records.Reserved
	err error
}

// sendReserve asks the store for a key until it has answered, or this node
// gives up. Nobody needs to wait for the reply, but the question is not taken
// back: a store goes on with a call that its caller has left, so a repeated one
// could be answered, and its claim released, before the first one lands. That
// one would claim a key of which nobody here knew.
func (n *Node) sendReserve(r records.Reservation) <-chan reserved {
	reply := make(chan reserved, 1)
	n.wg.Go(func() {
		got, err := definite(n.abort, n, func(ctx context.Context) (records.Reserved, error) { return n.store.Reserve(ctx, r) })
		reply <- reserved{got, err}
	})
	return reply
}

// settleReserve waits for what becomes of a reserve whose caller has been told
// that the store is unavailable, and frees the key if it was won: nothing was
// begun under it.
func (n *Node) settleReserve(id records.ID, reply <-chan reserved) {
	defer n.running.leave(id)
	got := <-reply
	if got.err != nil || !got.Owned {
		return
	}
	_, err := definite(n.abort, n, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, n.store.Release(ctx, id, got.Record.Fence())
	})
	if err != nil && !errors.Is(err, records.ErrFenced) && n.abort.Err() == nil {
		n.log.Error("release after a lost reserve failed", "record", id, "error", err)
	}
}
