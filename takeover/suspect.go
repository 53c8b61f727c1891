package takeover

import (
	"context"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// probe asks the holder once, on a fresh connection.
func (c *course) probe() {
	n, r := c.node, c.held.Record
	o := informed{n}.Probe(n.ctx, c.holder(), r.ID, r.Epoch)
	if o.Cancelled {
		return
	}
	n.config.Events.Probed(r, o.Verdict)
	c.heard(o)
}

// watch waits on a holder that runs the record. Now and then, as a safety
// net, the record is read from the store meanwhile.
func (c *course) watch() *landing {
	n, r := c.node, c.held.Record
	if !c.told {
		c.told = true
		n.config.Events.Waited(r)
	}
	var o probe.Observation
	l := c.idle(func(ctx context.Context) {
		o = n.asker.Watch(ctx, c.holder(), r.ID, r.Epoch, jitter(n.config.SettleRead, 0.5))
	})
	if l != nil {
		return l
	}
	n.config.Events.Probed(r, o.Verdict)
	if o.Verdict.Signed() {
		c.heard(o)
		return c.reread()
	}
	// A broken watch is no verdict: ask on a fresh connection. But silence
	// counts from here if the holder's beat is still the same when that fails.
	if l := c.reread(); l != nil {
		return l
	}
	c.saw(NotAsked)
	c.trail.broken = o.Broken
	c.trail.noted = sighting{beat: c.held.Executor.Beat, at: time.Now()}
	return nil
}

func (c *course) heard(o probe.Observation) {
	c.saw(evidenceOf(o.Verdict))
	c.trail.failure = o
	if o.Verdict.Signed() {
		c.trail.broken = false
	}
	if o.Verdict == probe.NotRunning {
		c.trail.notRunning = time.Now()
	}
}

// holder is the executor to ask, at the address that stands in the record.
func (c *course) holder() records.Executor {
	e := c.held.Executor
	e.ID, e.URL = c.held.Record.Executor, c.held.Record.ExecutorURL
	return e
}

// confirm turns the failed probe into a case against the holder. All flights
// that suspect one executor share one inquiry.
func (c *course) confirm() {
	n, e := c.node, c.holder()
	if n.spared(e.ID) {
		c.saw(Doubted)
		return
	}
	type verdict struct {
		probe.Conclusion
		suspicion records.Suspicion
	}
	got, _, _ := n.confirms.Do(e.ID.String(), func() (any, error) {
		b := n.boot()
		var noted time.Time
		if c.trail.broken && c.trail.noted.beat == e.Beat {
			noted = c.trail.noted.at
		}
		s := records.Suspicion{Suspect: e.ID, Beat: e.Beat, Probed: true, Observer: b.id, ObserverBeat: b.beats.Load()}
		v := n.inquire(n.ctx, b, probe.Case{
			Suspect: e, Record: c.flight.id, Epoch: c.held.Record.Epoch, First: c.trail.failure, Broke: c.trail.broken, Noted: noted,
		})
		s.ObserverBeats, s.Reason = v.ObserverBeats, v.Reason
		if v.Outcome == probe.Dropped {
			n.spare(e.ID, v.Until)
		}
		n.log.WarnContext(c.ctx, "suspicion", "suspect", e.ID, "outcome", v.Outcome, "verdict", v.Verdict, "reason", v.Reason)
		return verdict{v, s}, nil
	})
	v := got.(verdict)
	if v.Outcome != probe.Confirmed {
		c.saw(Doubted)
		if v.Verdict == probe.Replaced {
			c.saw(SaysReplaced)
		}
		return
	}
	c.saw(ConfirmedDead)
	c.trail.suspicion = v.suspicion
}

// confirmAlone confirms the death of the boot that holds this node's own slot
// at another address, before this one has registered.
func (n *Node) confirmAlone(ctx context.Context, holder records.Executor, first probe.Observation) bool {
	v := n.inquire(ctx, n.boot(), probe.Case{Suspect: holder, First: first})
	n.log.WarnContext(ctx, "slot is held", "holder", holder.ID, "url", holder.URL, "outcome", v.Outcome, "reason", v.Reason)
	return v.Outcome == probe.Confirmed || v.Verdict == probe.Replaced
}

// inquire confirms a failed probe. That no peer is alive may be said only by
// who knows the peers: one that cannot read the list may be the one cut off.
func (n *Node) inquire(ctx context.Context, b *boot, k probe.Case) probe.Conclusion {
	peers := &recent{node: n, ctx: ctx}
	v := probe.Confirmer{
		Self: b.id, Asker: informed{n}, Peers: peers,
		Budget: probe.Budget{
			ConfirmDown: n.config.ConfirmDown, ProbeBudget: n.config.ProbeBudget,
			// A witness makes a probe of its own before it answers.
			WitnessWait: max(2*time.Second, n.config.DialTimeout+n.config.HeaderTimeout+500*time.Millisecond),
		},
	}.Confirm(ctx, k)
	if v.Outcome == probe.Confirmed && v.Witness == (records.ExecutorID{}) && !peers.known {
		v.Outcome, v.Reason = probe.Abstained, "the list of peers cannot be read, and a witness is missing"
	}
	return v
}

// fence declares the holder dead, if the store agrees. Flights with the same
// case share one fence. What was seen is not news for long: a store that does
// not answer soon is not told again, and the holder is asked anew.
func (c *course) fence(s records.Suspicion) {
	n := c.node
	key := s.Suspect.String()
	if s.Probed {
		key += " probed"
	}
	got, err, _ := n.fences.Do(key, func() (any, error) {
		patience, cancel := context.WithTimeout(n.ctx, 2*n.config.StatementTimeout)
		defer cancel()
		e, err := definite(patience, n, func(ctx context.Context) (records.Executor, error) { return n.store.Fence(ctx, s) })
		switch {
		case err != nil:
			n.log.WarnContext(c.ctx, "fence refused", "suspect", s.Suspect, "probed", s.Probed, "error", err)
		case e.FencedBy == s.Observer:
			n.log.WarnContext(c.ctx, "fenced", "executor", s.Suspect, "reason", s.Reason)
			n.config.Events.Fenced(s.Suspect, s.Reason)
		}
		return e, err
	})
	if err == nil {
		c.held.Executor = got.(records.Executor)
		return
	}
	if s.Probed {
		c.saw(Doubted)
	} else {
		c.trail.staleRefused = true
	}
}

// ReasonLeaseExpired is the reason of a fence that needed no probe: the
// executor's lease had run out.
const ReasonLeaseExpired = "lease expired"

// staleSuspicion is the case against a holder whose lease has run out.
func (c *course) staleSuspicion() records.Suspicion {
	b, e := c.node.boot(), c.held.Executor
	return records.Suspicion{
		Suspect: e.ID, Beat: e.Beat, BeatUnchanged: c.node.peers.unchanged(e),
		Observer: b.id, ObserverBeat: b.beats.Load(), Reason: ReasonLeaseExpired,
	}
}

// spare keeps an executor from being suspected until a time: a witness has its
// signature.
func (n *Node) spare(id records.ExecutorID, until time.Time) {
	n.sparedMu.Lock()
	defer n.sparedMu.Unlock()
	for old, t := range n.sparedUntil {
		if time.Now().After(t) {
			delete(n.sparedUntil, old)
		}
	}
	n.sparedUntil[id] = until
}

func (n *Node) spared(id records.ExecutorID) bool {
	n.sparedMu.Lock()
	defer n.sparedMu.Unlock()
	return time.Now().Before(n.sparedUntil[id])
}
