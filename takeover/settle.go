package takeover

import (
	"context"
	"errors"

	"github.com/probate-dev/probate/records"
)

// settleReserve finds out what became of a reserve whose caller has been told
// that the store is unavailable, and frees the key if it was won: nothing was
// begun under it.
func (n *Node) settleReserve(r records.Reservation) {
	defer n.running.leave(r.ID)
	got, err := definite(n.abort, n, func(ctx context.Context) (records.Reserved, error) { return n.store.Reserve(ctx, r) })
	if err != nil || !got.Owned {
		return
	}
	_, err = definite(n.abort, n, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, n.store.Release(ctx, r.ID, got.Record.Fence())
	})
	if err != nil && !errors.Is(err, records.ErrFenced) && n.abort.Err() == nil {
		n.log.Error("release after a lost reserve failed", "record", r.ID, "error", err)
	}
}
