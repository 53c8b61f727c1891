package probe

import (
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Outcome is where a suspicion ended.
type Outcome int

const (
	// Abstained: no conclusion. The observer may be the one that is cut off,
	// or it was told to stop. Nothing may be fenced on it.
	Abstained Outcome = iota
	// Confirmed: the suspect may be fenced, if its heartbeats agree.
	Confirmed
	// Refuted: the observer itself got a signed answer, or learned that the
	// suspect was replaced; Conclusion.Verdict says which.
	Refuted
	// Dropped: a witness got a signed answer. The suspect lives, and is not
	// to be suspected again until Conclusion.Until.
	Dropped
)

var outcomeNames = [...]string{Abstained: "abstained", Confirmed: "confirmed", Refuted: "refuted", Dropped: "dropped"}

func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return outcomeNames[o]
}

// MarshalText is String, for structured logs.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Conclusion is what Confirm came to.
type Conclusion struct {
	Outcome Outcome
	// Verdict: if Confirmed, Down after refusals or else Silent; if Refuted,
	// the suspect's answer or Replaced. Else the last observation's.
	Verdict Verdict
	// ObserverBeats is how many of the observer's own heartbeats the fence
	// must demand since the first failure (records.Suspicion.ObserverBeats).
	ObserverBeats int64
	Until         time.Time // Dropped: by this process' clock
	Reason        string    // a sentence for the log and the fence
	Witness       records.ExecutorID
	Last          Observation // the observer's own last one
}

// Budget is what a suspicion must last. Zero durations mean the default.
type Budget struct {
	// ConfirmDown is how long an attested address must refuse, with a
	// witness; default 300 ms. It is shorter than a heartbeat: attestation
	// protects there.
	ConfirmDown time.Duration
	// ProbeBudget is how long anything else must last; default 5 s. It must
	// hold two heartbeats of the observer (protocol: at least 2.4 intervals
	// and the limits of a statement and of a header).
	ProbeBudget time.Duration
	// WitnessWait is how long one witness may take before the next peer is
	// asked; default 2 s, more than a probe's Overall.
	WitnessWait time.Duration
	// AttestedWithin is how young a peer's dial-back to the suspect must be
	// for a refusal to count as Down; default 3 min.
	AttestedWithin time.Duration
}

func (b Budget) withDefaults() Budget {
	b.ConfirmDown = positive(b.ConfirmDown, 300*time.Millisecond)
	b.ProbeBudget = positive(b.ProbeBudget, 5*time.Second)
	b.WitnessWait = positive(b.WitnessWait, 2*time.Second)
	b.AttestedWithin = positive(b.AttestedWithin, 3*time.Minute)
	return b
}

// hearing is where the search for a witness stands.
type hearing int

const (
	notAsked  hearing = iota
	asking            // a search is under way
	heard             // a peer signed what it saw
	exhausted         // peers are alive by the store, and none of them answered
	noPeers           // there is nobody to ask
)

// suspicion is what is known. All times count from the first failure.
type suspicion struct {
	attested bool // a peer reached the suspect at its address lately
	broke    bool // a watch that the suspect had answered broke just now

	now       time.Duration
	asked     bool          // the observer has asked since the first failure
	foundAt   time.Duration // when its last question ended
	last      Verdict       // what came of it, or of the first failure
	alive     bool          // the suspect signed it
	downSince time.Duration // when the unbroken run of refusals began, if last is Down

	hearing  hearing
	heardAt  time.Duration // when the search began that led to hearing
	saw      Verdict       // by the witness
	sawAlive bool
}

// observe adds what just came of the observer's question.
func (s *suspicion) observe(o Observation) {
	if o.Verdict == Down && s.last != Down {
		s.downSince = s.now
	}
	s.asked, s.foundAt, s.last, s.alive = true, s.now, o.Verdict, o.Alive()
}

// hear adds what a search for a witness came to.
func (s *suspicion) hear(h hearing, t Testimony) {
	s.hearing, s.saw, s.sawAlive = h, t.Saw, t.SuspectAlive
}

// step is what to do next.
type step int

const (
	wait       step = iota // for what is under way, and ask the suspect again by backoff
	askWitness             // begin a search
	confirmDown
	confirmSilent
	refute
	drop
	abstain
)

// next decides from what is known; it neither waits nor asks.
//
//   - A sign of life ends the suspicion.
//   - An attested address that has refused for ConfirmDown without a break,
//     and refuses a witness, is down. If a watch that the suspect itself had
//     answered broke just now, one refusal to each is enough.
//   - Anything else must last for ProbeBudget: a question that ended after it
//     had no answer, and a peer signs, now, that it got none either: the
//     search for it began after the budget. If none of the living peers
//     signs, the observer's own network is the suspect. If there are none,
//     the rule is void.
func (s suspicion) next(b Budget) step {
	switch {
	case s.alive || s.last.Signed() || s.last == Replaced:
		return refute
	case s.hearing == heard && (s.sawAlive || s.saw.Signed()):
		return drop
	case s.hearing == heard && s.saw == Replaced:
		return refute
	case s.hearing == notAsked:
		return askWitness
	case !s.asked:
		return wait
	}
	if s.attested && s.last == Down && s.foundAt-s.downSince >= s.window(b) && s.hearing == heard {
		// What a witness saw is not news for long, and the next one may know more.
		stale := s.now-s.heardAt > b.WitnessWait
		if s.saw == Down && !stale {
			return confirmDown
		}
		if stale {
			return askWitness
		}
	}
	switch {
	case s.hearing == asking || s.now < b.ProbeBudget:
		return wait
	case s.heardAt < b.ProbeBudget:
		return askWitness // while the observer's own last question may be under way
	case s.foundAt < b.ProbeBudget:
		return wait
	case s.hearing == exhausted:
		return abstain
	}
	return confirmSilent
}

// window is how long a run of refusals must be.
func (s suspicion) window(b Budget) time.Duration {
	if s.broke {
		return 0
	}
	return b.ConfirmDown
}

// pause is how long to wait before the suspect is asked again: what the
// backoff says, but not past the end of a window, where the next answer is the
// one that counts.
func (s suspicion) pause(b Budget, backoff time.Duration) time.Duration {
	for _, end := range [...]time.Duration{s.downSince + s.window(b), b.ProbeBudget} {
		if end > s.now {
			backoff = min(backoff, end-s.now)
		}
	}
	return backoff
}
