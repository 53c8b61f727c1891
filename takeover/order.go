package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/probate-dev/probate/records"
)

// Errors of [Node.Reconcile].
var (
	// ErrNoRoute: this node does not know the record's operation. Another may.
	ErrNoRoute = errors.New("operation is not known here")
	// ErrNoReconciler: the record's operation has no reconciler, so only a
	// person can tell.
	ErrNoReconciler = errors.New("operation has no reconciler")
)

// Reconciliation is what an operator's question came to.
type Reconciliation struct {
	Record  records.Record // as this node last knew it
	Claimed bool           // this node held the record for it; else Record says who keeps it from that
	Asked   bool           // the reconciler was asked
	Finding FindingKind    // with Asked: the last one
	Reason  string         // with Asked: why, if the reconciler said so or failed
	Over    bool           // the record is settled; else it goes on without the operator
}

// order is what an operator asked for: a record, as it stood at an epoch.
type order struct {
	epoch int64

	mu   sync.Mutex
	came Reconciliation
}

// Reconcile asks the reconciler of the record's operation what became of it,
// at an operator's wish: if its outcome is unknown, or if its executor is
// dead or is found to be, by the same way through the protocol that a
// duplicate goes. Nothing is executed: not applied frees the key.
//
// The limit of take-overs does not hold, since it is there to keep work from
// being begun again. If ctx ends first the record is settled all the same, and
// the Reconciliation is not Over.
//
// Errors: records.ErrNotFound; records.ErrFenced: it is finalized or released,
// or no longer at that epoch; [ErrNoRoute], [ErrNoReconciler],
// [ErrNotServing], records.ErrUnavailable.
func (n *Node) Reconcile(ctx context.Context, id records.ID, epoch int64) (Reconciliation, error) {
	if !n.answering() || !n.boot().mayClaim() {
		return Reconciliation{}, ErrNotServing
	}
	limit, cancel := context.WithTimeout(ctx, 2*n.config.StatementTimeout)
	defer cancel()
	erasures := n.memory.erasures.Load()
	h, err := definite(limit, n, func(ctx context.Context) (records.Held, error) { return n.store.Load(ctx, id) })
	if err != nil {
		if uncertain(err) {
			err = asUnavailable(err)
		}
		return Reconciliation{}, fmt.Errorf("load: %w", err)
	}
	o := &order{epoch: epoch, came: Reconciliation{Record: h.Record}}
	if o.outdated(h.Record) {
		return o.came, records.ErrFenced
	}
	terms, _, known := n.config.Recover(h.Record)
	switch {
	case !known:
		return o.came, fmt.Errorf("%w: %s", ErrNoRoute, h.Record.Operation)
	case terms.Reconciler == nil:
		return o.came, fmt.Errorf("%w: %s", ErrNoReconciler, h.Record.Operation)
	}
	f := n.flights.alone(id, requestOf(h.Record, terms))
	if f == nil {
		return o.came, ErrNotServing
	}
	n.wg.Go(func() { n.obey(context.WithoutCancel(ctx), f, o, h, erasures) })
	select {
	case <-f.landed:
	case <-ctx.Done():
		f.leave(true)
		return o.soFar(), nil
	}
	came := o.soFar()
	if !came.Claimed {
		came.Record = f.landing.pilot.Record
		if f.landing.err != nil {
			return o.came, f.landing.err
		}
	}
	return came, nil
}

// obey takes a flight that an operator has ordered from what the operator saw to
// its landing. The values of ctx are the operator's; it never ends.
func (n *Node) obey(ctx context.Context, f *flight, o *order, h records.Held, erasures int64) {
	c := &course{node: n, flight: f, ctx: ctx, order: o, erasures: erasures}
	c.found(h)
	f.know(h.Record, false)
	n.flights.land(f, c.run()) //nolint:contextcheck // a look at the store ends with this node, not with who asked
}

// requestOf is the request that a record was made for, as far as it says. The
// principal was never stored. What was erased cannot be asked about: who is asked
// by key would find nothing, and so say that nothing was done.
func requestOf(r records.Record, terms Terms) Request {
	if erased(r) {
		terms.Reconciler = askNobody
	}
	return Request{
		Key: records.Key{Realm: r.Realm, Key: r.Key}, Operation: r.Operation, Resource: r.Resource,
		Fingerprint: r.Fingerprint, Stored: r.Request, Terms: terms.withDefaults(),
	}
}

// outdated reports whether the record is not what the operator saw. No order:
// never.
func (o *order) outdated(r records.Record) bool {
	return o != nil && (r.Epoch != o.epoch || r.State != records.Unknown && r.State != records.InProgress)
}

// won notes the claim, as all below what they are told; no order: nothing.
func (o *order) won(r records.Record) {
	o.change(func(c *Reconciliation) { c.Claimed, c.Record = true, r })
}

func (o *order) hear(f Finding) {
	o.change(func(c *Reconciliation) { c.Asked, c.Finding, c.Reason = true, f.Kind, f.Reason })
}

func (o *order) end(e ending) {
	if e.record.State != records.InProgress {
		o.change(func(c *Reconciliation) { c.Over, c.Record = true, e.record })
	}
}

func (o *order) change(f func(c *Reconciliation)) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.came)
}

func (o *order) soFar() Reconciliation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.came
}

// WaitingFor is how many duplicates of a record wait on this node.
func (n *Node) WaitingFor(id records.ID) int { return n.waiters.of(id) }
