package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/probate-dev/probate/records"
)

// Asker asks the suspect and witnesses. [Client] is one.
type Asker interface {
	Probe(ctx context.Context, a records.Executor, id records.ID, epoch int64) Observation
	Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) Testimony
}

// PeerList is the list of executors as the observer's own last heartbeat
// returned it. Confirm picks the peers from it.
type PeerList interface {
	Peers() []records.Executor
}

// Confirmer turns a failed probe into a conclusion. All fields but Budget are
// required.
type Confirmer struct {
	Self   records.ExecutorID // the observer
	Asker  Asker
	Peers  PeerList
	Budget Budget
}

// Case is a suspicion when it arises.
type Case struct {
	// Suspect as it was read from the store at the first failure.
	Suspect records.Executor
	Record  records.ID
	Epoch   int64
	// First is the observation that failed, just now.
	First Observation
	// Noted is when Suspect's beat was read, if that was before the question
	// that failed: silence counts from then. Zero: from now.
	Noted time.Time
	// Broke: a watch that the suspect itself had answered with Running broke
	// just now.
	Broke bool
}

// Confirm asks the suspect again and again, and witnesses besides, until the
// evidence is complete. It returns at the latest a little after ProbeBudget
// plus the time that silent witnesses take, and leaves no goroutine behind.
//
// It never concludes anything about an executor whose policy is not to be
// fenced by probes: there only the lease counts.
func (c Confirmer) Confirm(ctx context.Context, k Case) Conclusion {
	if k.Suspect.Policy != records.PolicyProbe {
		return Conclusion{Last: k.First, Verdict: k.First.Verdict, Reason: "its policy is lease: only an expired lease may fence it"}
	}
	start := time.Now()
	if !k.Noted.IsZero() && k.Noted.Before(start) {
		start = k.Noted
	}
	inquiry := inquiry{
		Confirmer: c, Case: k, start: start, last: k.First,
		asks: make(chan Observation, 1), searches: make(chan finding, 1),
	}
	inquiry.Budget = c.Budget.withDefaults()
	return inquiry.run(ctx)
}

// inquiry is one Confirm under way.
type inquiry struct {
	Confirmer
	Case
	start    time.Time
	last     Observation
	witness  records.ExecutorID
	asks     chan Observation // at most one question is under way
	searches chan finding
	running  sync.WaitGroup
}

type finding struct {
	hearing hearing
	witness records.ExecutorID
	t       Testimony
}

func (q *inquiry) run(ctx context.Context) Conclusion {
	ctx, cancel := context.WithCancel(ctx)
	defer q.running.Wait()
	defer cancel()
	began := time.Since(q.start)
	s := suspicion{
		attested: q.Suspect.Attested(q.Budget.AttestedWithin), broke: q.Broke,
		last: q.First.Verdict, alive: q.First.Alive(), downSince: began,
	}
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(40*time.Millisecond), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	again := time.NewTimer(0)
	defer again.Stop()
	budgetEnds := time.NewTimer(q.Budget.ProbeBudget - began)
	defer budgetEnds.Stop()
	for {
		s.now = time.Since(q.start)
		switch next := s.next(q.Budget); next {
		case wait:
		case askWitness:
			s.hearing, s.heardAt = asking, s.now
			q.running.Go(func() { q.searches <- q.search(ctx) })
		case confirmDown, confirmSilent, refute, drop, abstain:
			return q.conclude(next, s)
		}
		select {
		case <-ctx.Done():
			return q.stopped(context.Cause(ctx))
		case <-budgetEnds.C: // the last search begins
		case <-again.C:
			q.running.Go(func() { q.asks <- q.Asker.Probe(ctx, q.Suspect, q.Record, q.Epoch) })
		case o := <-q.asks:
			if o.Cancelled {
				return q.stopped(o.Err)
			}
			q.last = o
			s.now = time.Since(q.start)
			s.observe(o)
			again.Reset(s.pause(q.Budget, pauses.NextBackOff()))
		case f := <-q.searches:
			q.witness = f.witness
			s.hear(f.hearing, f.t)
		}
	}
}

// maxWitnesses bounds one search: so many silent peers are a network of one.
const maxWitnesses = 5

// search asks peers, in random order so that no one carries the load, until
// one signs what it sees.
func (q *inquiry) search(ctx context.Context) finding {
	peers := peersOf(q.Peers.Peers(), q.Self, q.Suspect.ID)
	if len(peers) == 0 {
		return finding{hearing: noPeers}
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for _, p := range peers[:min(len(peers), maxWitnesses)] {
		if t, ok := q.hearOne(ctx, p); ok {
			return finding{hearing: heard, witness: p.ID, t: t}
		}
	}
	return finding{hearing: exhausted}
}

func (q *inquiry) hearOne(ctx context.Context, p records.Executor) (Testimony, bool) {
	ctx, cancel := context.WithTimeout(ctx, q.Budget.WitnessWait)
	defer cancel()
	t := q.Asker.Witness(ctx, p, q.Suspect.ID)
	return t, t.Heard.Err == nil && t.Heard.Alive()
}

// peersOf picks the active executors, other than the observer and the
// suspect, whose heartbeat is younger than half their lease.
func peersOf(all []records.Executor, self, suspect records.ExecutorID) []records.Executor {
	var peers []records.Executor
	for _, e := range all {
		if e.State == records.Active && e.ID != self && e.ID != suspect && e.HeartbeatAge < e.LeaseTTL/2 {
			peers = append(peers, e)
		}
	}
	return peers
}

func (q *inquiry) stopped(cause error) Conclusion {
	return Conclusion{Outcome: Abstained, Verdict: q.last.Verdict, Last: q.last, Reason: fmt.Sprintf("stopped: %v", cause)}
}

func (q *inquiry) conclude(next step, s suspicion) Conclusion {
	c := Conclusion{Verdict: q.last.Verdict, Last: q.last, Witness: q.witness}
	who := "and no peer is alive"
	if s.hearing == heard {
		who = fmt.Sprintf("and witness %s saw it %s", q.witness, s.saw)
	}
	lasted := s.now.Round(time.Millisecond)
	switch next {
	case confirmDown:
		c.Outcome, c.Verdict = Confirmed, Down
		c.Reason = fmt.Sprintf("refused connections, last after %s, %s", lasted, who)
	case confirmSilent:
		c.Outcome, c.Verdict, c.ObserverBeats = Confirmed, Silent, 2
		c.Reason = fmt.Sprintf("no signed answer for %s, last %s, %s", lasted, s.last, who)
	case refute:
		c.Outcome = Refuted
		if s.saw == Replaced && s.hearing == heard {
			c.Verdict = Replaced
		}
		c.Reason = fmt.Sprintf("found %s", c.Verdict)
	case drop:
		c.Outcome, c.Until = Dropped, time.Now().Add(q.Suspect.LeaseTTL)
		c.Reason = fmt.Sprintf("witness %s has its signed answer", q.witness)
	case abstain, wait, askWitness:
		c.Outcome, c.Reason = Abstained, "peers are alive and none of them answers: this node may be the one that is cut off"
	}
	return c
}
