package probe_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// script is an Asker in a bubble: what the suspect does to the observer, and
// what each peer says, as functions of the time since the start.
type script struct {
	start   time.Time
	suspect func(at time.Duration) (probe.Verdict, time.Duration) // and how long that takes
	peers   map[records.ExecutorID]func(at time.Duration) (probe.Testimony, time.Duration)
	list    []records.Executor

	mu     sync.Mutex
	probes []time.Duration // when the suspect was asked
	heard  []records.ExecutorID
}

func always(v probe.Verdict, takes time.Duration) func(time.Duration) (probe.Verdict, time.Duration) {
	return func(time.Duration) (probe.Verdict, time.Duration) { return v, takes }
}

func (s *script) pass(ctx context.Context, d time.Duration) (gaveUp bool) {
	select {
	case <-ctx.Done():
		return true
	case <-time.After(d):
		return false
	}
}

func (s *script) Probe(ctx context.Context, a records.Executor, _ records.ID, _ int64) probe.Observation {
	at := time.Since(s.start)
	s.mu.Lock()
	s.probes = append(s.probes, at)
	s.mu.Unlock()
	v, takes := s.suspect(at)
	if s.pass(ctx, takes) {
		return probe.Observation{Asked: a.ID, Err: context.Cause(ctx), Cancelled: true}
	}
	o := probe.Observation{Asked: a.ID, Verdict: v}
	if v.Signed() {
		o.Signer = a.ID
	} else {
		o.Err = errors.New("scripted")
	}
	return o
}

func (s *script) Witness(ctx context.Context, w records.Executor, _ records.ExecutorID) probe.Testimony {
	s.mu.Lock()
	s.heard = append(s.heard, w.ID)
	s.mu.Unlock()
	t, takes := s.peers[w.ID](time.Since(s.start))
	if s.pass(ctx, takes) {
		return probe.Testimony{Heard: probe.Observation{Asked: w.ID, Err: context.Cause(ctx), Cancelled: true}}
	}
	t.Heard.Asked = w.ID
	if t.Heard.Err == nil {
		t.Heard.Signer, t.Heard.Verdict = w.ID, probe.NotRunning
	}
	return t
}

func (s *script) Peers() []records.Executor { return s.list }

// saw is a witness that takes a moment.
func saw(v probe.Verdict) func(time.Duration) (probe.Testimony, time.Duration) {
	return func(time.Duration) (probe.Testimony, time.Duration) {
		return probe.Testimony{Saw: v, SuspectAlive: v.Signed()}, 2 * time.Millisecond
	}
}

// mute is a witness that never answers.
func mute(time.Duration) (probe.Testimony, time.Duration) { return probe.Testimony{}, time.Hour }

// gone is a witness that cannot be reached.
func gone(time.Duration) (probe.Testimony, time.Duration) {
	return probe.Testimony{Heard: probe.Observation{Verdict: probe.Down, Err: errors.New("refused")}}, time.Millisecond
}

func peer(b byte) records.Executor {
	return records.Executor{ID: executorID(b), State: records.Active, LeaseTTL: 15 * time.Second, Policy: records.PolicyProbe}
}

const suspectID, observerID = 1, 2

// case1 is an attested suspect that was just found so.
func case1(first probe.Verdict) probe.Case {
	suspect := peer(suspectID)
	suspect.AttestedAt, suspect.AttestedAge = time.Now(), time.Minute
	return probe.Case{Suspect: suspect, Record: recordID(1), Epoch: 7, First: probe.Observation{Verdict: first, Asked: suspect.ID, Err: errors.New("first")}}
}

// confirm runs the script, and says how long it took.
func confirm(ctx context.Context, s *script, k probe.Case) (probe.Conclusion, time.Duration) {
	s.start = time.Now()
	s.list = append(s.list, peer(suspectID), peer(observerID))
	for id := range s.peers {
		e := peer(0)
		e.ID = id
		s.list = append(s.list, e)
	}
	c := probe.Confirmer{Self: executorID(observerID), Asker: s, Peers: s}.Confirm(ctx, k)
	return c, time.Since(s.start)
}

type witnesses = map[records.ExecutorID]func(time.Duration) (probe.Testimony, time.Duration)

func TestConfirm(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	refused := always(probe.Down, ms)
	silent := always(probe.Silent, 1500*ms)
	unattested := func(k *probe.Case) { k.Suspect.AttestedAt = time.Time{} }
	broke := func(k *probe.Case) { k.Broke = true }
	noted := func(k *probe.Case) { k.Noted = time.Now().Add(-2 * s) }
	notedLater := func(k *probe.Case) { k.Noted = time.Now().Add(2 * s) }
	for _, row := range []struct {
		name        string
		first       probe.Verdict
		change      func(k *probe.Case)
		suspect     func(time.Duration) (probe.Verdict, time.Duration)
		peers       witnesses
		want        probe.Outcome
		verdict     probe.Verdict
		beats       int64
		after, upTo time.Duration
	}{
		{"RefusedByAnAttestedAddress", probe.Down, nil, refused, witnesses{executorID(3): saw(probe.Down)}, probe.Confirmed, probe.Down, 0, 300 * ms, 310 * ms},
		{"SilenceSinceTheBeatWasNoted", probe.Silent, noted, silent, witnesses{executorID(3): saw(probe.Silent)}, probe.Confirmed, probe.Silent, 2, 3 * s, 4600 * ms},
		{"SilenceIsNotNotedInTheFuture", probe.Silent, notedLater, silent, witnesses{executorID(3): saw(probe.Silent)}, probe.Confirmed, probe.Silent, 2, 5 * s, 6600 * ms},
		{"RefusalsCountFromTheFirst", probe.Down, noted, refused, witnesses{executorID(3): saw(probe.Down)}, probe.Confirmed, probe.Down, 0, 300 * ms, 310 * ms},
		{"ABrokenWatchAndTwoRefusals", probe.Unknown, broke, refused, witnesses{executorID(3): saw(probe.Down)}, probe.Confirmed, probe.Down, 0, ms, 5 * ms},
		{"ABrokenWatchAndALivingSuspect", probe.Unknown, broke, always(probe.Running, ms), witnesses{executorID(3): saw(probe.Running)}, probe.Refuted, probe.Running, 0, ms, 2 * ms},
		{"AKillInTheMiddleOfAnAnswer", probe.Unknown, nil, refused, witnesses{executorID(3): saw(probe.Down)}, probe.Confirmed, probe.Down, 0, 300 * ms, 310 * ms},
		{"RefusedWithoutAttestation", probe.Down, unattested, refused, witnesses{executorID(3): saw(probe.Down)}, probe.Confirmed, probe.Silent, 2, 5 * s, 5100 * ms},
		{"RefusedAndNobodyElseThere", probe.Down, nil, refused, nil, probe.Confirmed, probe.Silent, 2, 5 * s, 5100 * ms},
		{"RefusedButTheWitnessMetSilence", probe.Down, nil, refused, witnesses{executorID(3): saw(probe.Silent)}, probe.Confirmed, probe.Silent, 2, 5 * s, 5100 * ms},
		{"RefusedAndEveryWitnessMute", probe.Down, nil, refused, witnesses{executorID(3): mute, executorID(4): mute}, probe.Abstained, probe.Down, 0, 9 * s, 10 * s},
		{"RefusedAndTheFirstWitnessesGone", probe.Down, nil, refused, witnesses{executorID(3): gone, executorID(4): gone, executorID(5): saw(probe.Down)}, probe.Confirmed, probe.Down, 0, 300 * ms, 310 * ms},
		{"RefusedAndTheWitnessSpeaksToIt", probe.Down, nil, refused, witnesses{executorID(3): saw(probe.Running)}, probe.Dropped, probe.Down, 0, 2 * ms, 5 * ms},
		{"Silent", probe.Silent, nil, silent, witnesses{executorID(3): saw(probe.Silent)}, probe.Confirmed, probe.Silent, 2, 5 * s, 6600 * ms},
		{"SilentAndNobodyElseThere", probe.Silent, nil, silent, nil, probe.Confirmed, probe.Silent, 2, 5 * s, 6600 * ms},
		{"SilentAndEveryWitnessGone", probe.Silent, nil, silent, witnesses{executorID(3): gone}, probe.Abstained, probe.Silent, 0, 5 * s, 6600 * ms},
		{"SilentAndTheWitnessSpeaksToIt", probe.Silent, nil, silent, witnesses{executorID(3): saw(probe.NotRunning)}, probe.Dropped, probe.Silent, 0, 2 * ms, 5 * ms},
		{"SilentAndAReplacementIsSeen", probe.Silent, nil, silent, witnesses{executorID(3): saw(probe.Replaced)}, probe.Refuted, probe.Replaced, 0, 2 * ms, 5 * ms},
		{"AReplacementAnswers", probe.Down, nil, always(probe.Replaced, ms), witnesses{executorID(3): mute}, probe.Refuted, probe.Replaced, 0, ms, 2 * ms},
		{"Unknown", probe.Unknown, nil, always(probe.Unknown, ms), witnesses{executorID(3): saw(probe.Unknown)}, probe.Confirmed, probe.Silent, 2, 5 * s, 5100 * ms},
		{"Stranger", probe.Stranger, nil, always(probe.Stranger, ms), witnesses{executorID(3): saw(probe.Stranger)}, probe.Confirmed, probe.Silent, 2, 5 * s, 5100 * ms},
		{"ItComesBack", probe.Down, nil, func(at time.Duration) (probe.Verdict, time.Duration) {
			if at < 200*ms {
				return probe.Down, ms
			}
			return probe.NotRunning, ms
		}, witnesses{executorID(3): saw(probe.Down)}, probe.Refuted, probe.NotRunning, 0, 200 * ms, 310 * ms},
		{"TheWitnessReachesItAtTheEnd", probe.Silent, nil, silent, witnesses{executorID(3): func(at time.Duration) (probe.Testimony, time.Duration) {
			return probe.Testimony{Saw: probe.Silent, SuspectAlive: at >= 5*s}, ms
		}}, probe.Dropped, probe.Silent, 0, 5 * s, 6600 * ms},
		{"SilenceTurnsIntoRefusal", probe.Silent, nil, func(at time.Duration) (probe.Verdict, time.Duration) {
			if at < 2*s {
				return probe.Silent, 1500 * ms
			}
			return probe.Down, ms
		}, witnesses{executorID(3): func(at time.Duration) (probe.Testimony, time.Duration) {
			if at < 2*s {
				return probe.Testimony{Saw: probe.Silent}, 1500 * ms
			}
			return probe.Testimony{Saw: probe.Down}, ms
		}}, probe.Confirmed, probe.Down, 0, 2300 * ms, 5 * s},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := case1(row.first)
				if row.change != nil {
					row.change(&k)
				}
				sc := &script{suspect: row.suspect, peers: row.peers}
				c, took := confirm(t.Context(), sc, k)
				if c.Outcome != row.want || c.Verdict != row.verdict || c.ObserverBeats != row.beats {
					t.Errorf("got %+v", c)
				}
				if took < row.after || took > row.upTo {
					t.Errorf("took %v, want %v to %v", took, row.after, row.upTo)
				}
				if c.Reason == "" {
					t.Error("no reason")
				}
				if want := time.Now().Add(k.Suspect.LeaseTTL); (c.Outcome == probe.Dropped) != c.Until.Equal(want) {
					t.Errorf("dropped until %v", c.Until)
				}
			})
		})
	}
}

// TestConfirmPolicyLease: a probe never concludes against a lease.
func TestConfirmPolicyLease(t *testing.T) {
	t.Parallel()
	for _, policy := range []records.Policy{records.PolicyLease, ""} {
		k := case1(probe.Down)
		k.Suspect.Policy = policy
		c, _ := confirm(t.Context(), &script{suspect: func(time.Duration) (probe.Verdict, time.Duration) {
			t.Error("it was asked")
			return probe.Down, 0
		}}, k)
		if c.Outcome != probe.Abstained {
			t.Errorf("policy %q: %+v", policy, c)
		}
	}
}

func TestConfirmStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		time.AfterFunc(700*time.Millisecond, func() { cancel(why) })
		c, took := confirm(ctx, &script{suspect: always(probe.Silent, time.Second), peers: witnesses{executorID(3): mute}}, case1(probe.Silent))
		if c.Outcome != probe.Abstained || took != 700*time.Millisecond {
			t.Errorf("after %v: %+v", took, c)
		}
	})
}

// TestConfirmPeers: who is asked for a testimony.
func TestConfirmPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, draining, edge := peer(3), peer(4), peer(5)
		old.HeartbeatAge = old.LeaseTTL/2 + 1
		draining.State = records.Draining
		edge.HeartbeatAge = edge.LeaseTTL / 2
		sc := &script{suspect: always(probe.Down, time.Millisecond), list: []records.Executor{old, draining, edge}}
		c, _ := confirm(t.Context(), sc, case1(probe.Down))
		if c.Outcome != probe.Confirmed || c.ObserverBeats != 2 || len(sc.heard) != 0 {
			t.Errorf("got %+v, heard %v", c, sc.heard)
		}
	})
}

// TestConfirmAsksSparingly: a confirmation is no flood.
func TestConfirmAsksSparingly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sc := &script{suspect: always(probe.Unknown, time.Millisecond), peers: witnesses{executorID(3): saw(probe.Unknown)}}
		if c, _ := confirm(t.Context(), sc, case1(probe.Unknown)); c.Outcome != probe.Confirmed {
			t.Errorf("got %+v", c)
		}
		if n := len(sc.probes); n < 4 || n > 20 {
			t.Errorf("%d probes: %v", n, sc.probes)
		}
		if n := len(sc.heard); n != 2 {
			t.Errorf("%d witnesses, want one at the start and one at the end", n)
		}
		if last := sc.probes[len(sc.probes)-1]; last < 5*time.Second {
			t.Errorf("the last question began at %v, before the end of the budget", last)
		}
	})
}

// TestConfirmForReal is one confirmation over real sockets.
func TestConfirmForReal(t *testing.T) {
	t.Parallel()
	observer, witness := newNode(t, 2, nil), newNode(t, 3, nil)
	p := startProcess(t)
	witness.peers.add(p.executor)
	list := &script{list: []records.Executor{p.executor, observer.executor, witness.executor}}
	list.list[0].AttestedAge = time.Second
	c := probe.Confirmer{Self: observer.executor.ID, Asker: observer.client, Peers: list}
	k := probe.Case{Suspect: p.executor, Record: recordID(1), Epoch: 1}
	if got := c.Confirm(t.Context(), k); got.Outcome != probe.Refuted && got.Outcome != probe.Dropped {
		t.Fatalf("alive: %+v", got)
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	k.First = observer.client.Probe(t.Context(), k.Suspect, k.Record, k.Epoch)
	if got := c.Confirm(t.Context(), k); got.Outcome != probe.Confirmed || got.Verdict != probe.Down || got.Witness != witness.executor.ID {
		t.Fatalf("dead: %+v", got)
	}
}
