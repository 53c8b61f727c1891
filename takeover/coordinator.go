package takeover

import (
	"context"
	"errors"
	"time"

	"github.com/probate-dev/probate/records"
)

// errNobodyWaits ends a watch for which nobody is left.
var errNobodyWaits = errors.New("nobody waits")

// Do answers a keyed request: by executing work, once in the fleet, or with
// what another request's execution came to. A caller whose ctx ends gets its
// cause; the work, or the wait of others, goes on.
//
// Errors: [ErrNotServing] and records.ErrUnavailable, after neither of which
// work was begun for this caller, and records.ErrInvalid.
func (n *Node) Do(ctx context.Context, req Request, work Work) (Answer, error) {
	req.Terms = req.Terms.withDefaults()
	id := req.Key.ID()
	for n.answering() {
		if r, ok := n.memory.recall(id); ok {
			return replay(r, req), nil
		}
		f, pilot := n.flights.board(id, req, work)
		if f == nil {
			break
		}
		if pilot {
			n.wg.Go(func() { n.fly(context.WithoutCancel(ctx), f) })
		}
		how := n.ride(ctx, f, pilot, req.Wait)
		f.leave(pilot)
		answer, again, err := n.alight(ctx, f, pilot, how)
		if err != nil || !again {
			return answer, err
		}
	}
	return Answer{}, ErrNotServing
}

// arrival is why a caller waits no longer.
type arrival int

const (
	landed     arrival = iota // the flight has
	settled                   // its own execution has an answer
	unanswered                // it has waited long enough
	gone                      // its context has ended
)

// ride waits for a flight's landing on behalf of one caller. Who executes
// waits as long as it takes; who waits for another's execution waits as long
// as it wished, counted from when that was known.
//
// Thousands may wait at once, each on a stack of its own, so nothing large
// lives here: the answer is made when the wait is over.
func (n *Node) ride(ctx context.Context, f *flight, pilot bool, wait time.Duration) arrival {
	var settles <-chan struct{}
	if pilot {
		settles = f.settled
	}
	select {
	case <-f.landed:
		return landed
	case <-f.known:
	case <-ctx.Done():
		return gone
	}
	var timeout <-chan time.Time
	if (!pilot || !f.owned) && !f.stands() {
		if !n.waiters.admit(f.id, f.request.Key.Realm) {
			return unanswered
		}
		defer n.waiters.dismiss(f.id, f.request.Key.Realm)
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-f.landed:
		return landed
	case <-settles:
		return settled
	case <-timeout:
		return unanswered
	case <-ctx.Done():
		return gone
	}
}

// alight is what a caller is told who waits no longer.
func (n *Node) alight(ctx context.Context, f *flight, pilot bool, how arrival) (answer Answer, again bool, err error) {
	switch how {
	case landed:
		return f.arrive(pilot)
	case settled:
		return f.mine, false, nil
	case unanswered:
		return n.inProgress(f.first), false, nil
	case gone:
	}
	return Answer{}, false, context.Cause(ctx)
}

// replay answers from a finalized record.
func replay(r records.Record, req Request) Answer {
	if r.Fingerprint != req.Fingerprint {
		return Answer{Outcome: Reused, Record: r}
	}
	return Answer{Outcome: Replayed, Record: r}
}

// arrive is what a landed flight tells one of its callers.
func (f *flight) arrive(pilot bool) (answer Answer, again bool, err error) {
	if pilot {
		select {
		case <-f.settled: // whatever came after
			return f.mine, false, nil
		default:
		}
	}
	switch l := f.landing; {
	case l.err != nil:
		return Answer{}, false, l.err
	case pilot:
		return l.pilot, false, nil
	default:
		return l.others, l.again, nil
	}
}

// inProgress tells a caller to ask again later.
func (n *Node) inProgress(r records.Record) Answer {
	return Answer{Outcome: InProgress, Record: r, RetryAfter: n.config.Heartbeat}
}

// fly takes a flight from its first reserve to its landing. The values of ctx
// are the first caller's; it never ends.
func (n *Node) fly(ctx context.Context, f *flight) {
	c := &course{node: n, flight: f, ctx: ctx, erasures: n.memory.erasures.Load()}
	n.flights.land(f, c.run())
	if c.unsettled != nil {
		c.unsettled()
	}
}

// Waiting is how many duplicates wait on this node.
func (n *Node) Waiting() int { return n.waiters.size() }
