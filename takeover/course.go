package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// course is one flight's way through the protocol: it does what [Decide] says
// until there is an answer.
type course struct {
	node   *Node
	flight *flight
	ctx    context.Context // the first caller's values; it never ends

	held   records.Held
	trail  trail
	waited bool    // the answer was not there at the first look
	begun  bool    // work was begun, under a tenure of this flight
	told   bool    // that it waits was said
	tenure *tenure // of the record, while this flight holds it

	erasures int64 // known of before anything was read

	order *order // what an operator asked for, where no client asks

	unsettled func() // what is left to do once the callers have their answer
}

// trail is what asking has shown about one holder at one epoch.
type trail struct {
	fence        records.Fence
	evidence     Evidence
	reread       bool
	staleRefused bool
	broken       bool              // a watch that the holder had answered broke
	noted        sighting          // the holder's beat, as read when that watch broke
	notRunning   time.Time         // when it signed that
	failure      probe.Observation // what a failed probe saw
	suspicion    records.Suspicion // with ConfirmedDead
}

// sighting is a beat and when it was read.
type sighting struct {
	beat int64
	at   time.Time
}

// run returns how the flight ended. Once work was begun nobody is told that
// nothing was: it is left to others, so it is in progress.
func (c *course) run() landing {
	l := c.follow()
	if c.begun && (errors.Is(l.err, ErrNotServing) || errors.Is(l.err, records.ErrUnavailable)) {
		left := c.node.inProgress(c.held.Record)
		return landing{pilot: left, others: left}
	}
	return l
}

// follow does one thing after the other until there is an answer.
func (c *course) follow() landing {
	if l := c.begin(); l != nil {
		return *l
	}
	for {
		var l *landing
		switch {
		case c.tenure != nil:
			l = c.serve()
		case c.node.ctx.Err() != nil:
			l = &landing{err: ErrNotServing}
		case c.order.outdated(c.held.Record):
			l = &landing{err: records.ErrFenced}
		default:
			l = c.step()
		}
		if l != nil {
			return *l
		}
	}
}

// begin takes a first look, by asking for the key. An operator has looked.
func (c *course) begin() *landing {
	if c.order != nil {
		return nil
	}
	return c.reserve()
}

// reserve asks for the key. The running set knows of it before the store does.
// A node that may not claim only looks what stands there.
func (c *course) reserve() *landing {
	n, f := c.node, c.flight
	b := n.boot()
	if !b.mayClaim() {
		return c.look()
	}
	r := records.Reservation{
		ID: f.id, Realm: f.request.Key.Realm, Key: f.request.Key.Key,
		Operation: f.request.Operation, Resource: f.request.Resource,
		Fingerprint: f.request.Fingerprint, Request: f.request.Stored,
		By: b.id, Attempt: records.NewToken(),
	}
	n.running.enter(f.id)
	reply := n.sendReserve(r)
	patience := time.NewTimer(2 * n.config.StatementTimeout)
	defer patience.Stop()
	var got reserved
	select {
	case got = <-reply:
	case <-patience.C:
		c.unsettled = func() { n.settleReserve(r.ID, reply) }
		return &landing{err: fmt.Errorf("reserve: %w: no answer in time", records.ErrUnavailable)}
	}
	err := got.err
	switch {
	case err == nil && got.Owned:
		c.tenure = c.take(b, Claim{Record: got.Record})
		c.tenure.first = true
		n.config.Events.Claimed(got.Record)
	case err == nil:
		n.running.leave(f.id)
		c.found(got.Held)
	default:
		n.running.leave(f.id)
		switch {
		case errors.Is(err, records.ErrNotActive):
			b.kick() // if it was fenced, the heartbeat finds out
			err = ErrNotServing
		case uncertain(err):
			err = asUnavailable(err) // this node gives up
		}
		return &landing{err: fmt.Errorf("reserve: %w", err)}
	}
	f.know(got.Record, got.Owned)
	return nil
}

// look reads what stands under the key, for a node that may not claim it.
func (c *course) look() *landing {
	n := c.node
	patience, cancel := context.WithTimeout(n.abort, 2*n.config.StatementTimeout)
	defer cancel()
	h, err := definite(patience, n, func(ctx context.Context) (records.Held, error) { return n.store.Load(ctx, c.flight.id) })
	switch {
	case err == nil:
		c.found(h)
		c.flight.know(h.Record, false)
		return nil
	case errors.Is(err, records.ErrNotFound):
		return &landing{err: ErrNotServing}
	case uncertain(err):
		err = asUnavailable(err)
	}
	return &landing{err: fmt.Errorf("load: %w", err)}
}

// step does the next thing for a record that this flight does not hold.
func (c *course) step() *landing {
	n := c.node
	switch Decide(c.situation()) {
	case Reread:
		return c.reread()
	case Reserve:
		if !n.boot().mayClaim() {
			return &landing{err: ErrNotServing}
		}
		return c.reserve()
	case Replay:
		return c.land(Waited)
	case Refuse:
		return c.land(Reused)
	case AnswerUnknown:
		return c.land(OutcomeUnknown)
	case AnswerInProgress:
		return c.land(InProgress)
	case Join:
		return c.join()
	case Probe:
		c.probe()
	case Watch:
		return c.watch()
	case Confirm:
		c.confirm()
	case FenceProbed:
		c.fence(c.trail.suspicion)
	case FenceStale:
		c.fence(c.staleSuspicion())
	case TakeOver:
		return c.takeOver(false)
	case TakeOverSigned:
		return c.takeOver(true)
	case ClaimUnknown:
		return c.claimUnknown()
	case Pause:
		return c.pause()
	}
	return nil
}

// situation is what Decide needs to know.
func (c *course) situation() Situation {
	r, e, b := c.held.Record, c.held.Executor, c.node.boot()
	s := Situation{
		State:        r.State,
		SameRequest:  r.Fingerprint == c.flight.request.Fingerprint,
		Executor:     e.State,
		Policy:       e.Policy,
		Stale:        e.Stale() || c.node.peers.unchanged(e),
		StaleRefused: c.trail.staleRefused,
		Evidence:     c.trail.evidence,
		Reread:       c.trail.reread,
		MayClaim:     b.mayClaim(),
		MayReconcile: c.flight.request.Terms.Reconciler != nil && (r.Takeovers <= c.node.config.Takeovers || c.order != nil),
		Waiting:      c.flight.waiting() && c.order == nil,
	}
	if r.Executor == b.id {
		s.Holder = Orphaned
		if _, here := c.node.running.Entry(r.ID); here {
			s.Holder = Here
		}
	}
	return s
}

// found notes what the store said. Evidence about another holder or epoch is
// forgotten.
func (c *course) found(h records.Held) {
	if fence := h.Record.Fence(); fence != c.trail.fence {
		c.trail = trail{fence: fence}
	} else {
		c.trail.reread = true
	}
	c.node.memory.keep(h.Record, c.erasures)
	c.held = h
}

func (c *course) saw(e Evidence) {
	c.trail.evidence, c.trail.reread = e, false
}

// reread reads the record again. While the store cannot be reached it tries
// as long as somebody waits.
func (c *course) reread() *landing {
	n := c.node
	c.waited = true
	pace := n.pace()
	for {
		limit, cancel := context.WithTimeout(n.abort, n.config.StatementTimeout)
		h, err := n.store.Load(limit, c.flight.id)
		cancel()
		switch {
		case err == nil:
			c.found(h)
			return nil
		case errors.Is(err, records.ErrNotFound) && c.order == nil:
			return c.reserve()
		case !uncertain(err):
			return &landing{err: fmt.Errorf("load: %w", err)}
		}
		if l := c.idle(func(ctx context.Context) { _ = sleep(ctx, pace.NextBackOff()) }); l != nil {
			return l
		}
	}
}

// idle runs a stretch in which the flight may be abandoned, and lands it if it
// was, or if this node stops.
func (c *course) idle(wait func(ctx context.Context)) *landing {
	ctx, done, ok := c.flight.watch(c.node.ctx)
	if !ok {
		return &landing{err: errNobodyWaits}
	}
	defer done()
	wait(ctx)
	if ctx.Err() == nil {
		return nil
	}
	if c.node.ctx.Err() != nil {
		return &landing{err: ErrNotServing}
	}
	return &landing{err: context.Cause(ctx)}
}

// pause waits for about a heartbeat, then asks and reads anew.
func (c *course) pause() *landing {
	pause := jitter(c.node.config.Heartbeat, 0.2)
	if l := c.idle(func(ctx context.Context) { _ = sleep(ctx, pause) }); l != nil {
		return l
	}
	c.trail = trail{fence: c.trail.fence}
	return c.reread()
}

// join waits for the execution on this node.
func (c *course) join() *landing {
	done, here := c.node.running.Entry(c.flight.id)
	if here {
		l := c.idle(func(ctx context.Context) {
			select {
			case <-done:
			case <-ctx.Done():
			}
		})
		if l != nil {
			return l
		}
	}
	return c.reread()
}

// land answers from the record as it was read. The first caller was answered
// at once if the answer stood there when it came.
func (c *course) land(outcome OutcomeKind) *landing {
	answer := Answer{Outcome: outcome, Record: c.held.Record}
	if outcome == InProgress {
		answer = c.node.inProgress(c.held.Record)
	}
	l := &landing{pilot: answer, others: answer}
	if outcome == Waited && !c.waited {
		l.pilot.Outcome, l.others.Outcome = Replayed, Replayed
	}
	return l
}

// serve ends the tenure and answers with what came of it. If it was overtaken
// the flight goes on as a duplicate of its successor.
func (c *course) serve() *landing {
	t := c.tenure
	e := t.serve()
	c.order.end(e)
	c.node.running.leave(t.claim.Record.ID)
	c.tenure, c.waited = nil, true
	c.begun = c.begun || t.started
	c.held.Record = e.record
	pilot := Answer{Outcome: e.outcome, Record: e.record, Completion: e.completion}
	switch e.record.State {
	case records.InProgress:
		if e.lost {
			return c.reread()
		}
		return &landing{err: ErrNotServing} // left to others
	case records.Released:
		if e.unstarted {
			return &landing{err: ErrNotServing}
		}
		return &landing{pilot: pilot, again: true}
	case records.Unknown:
		return &landing{pilot: pilot, others: Answer{Outcome: OutcomeUnknown, Record: e.record}}
	case records.Finalized:
	}
	// Nobody boards any more before the first caller has its answer: who asks
	// after that has not waited.
	others := c.flight.ground()
	c.flight.settle(pilot)
	if others == 0 {
		return &landing{pilot: pilot}
	}
	// What others are told comes from the store. If it has expired there
	// already, they go on as anybody who asks for a free key.
	if l := c.reread(); l != nil || c.tenure != nil || c.held.Record.State != records.Finalized {
		return l
	}
	return &landing{pilot: pilot, others: Answer{Outcome: Waited, Record: c.held.Record}}
}
