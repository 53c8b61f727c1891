package takeover

import (
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// Situation is all that a node knows of a record at the moment it must decide
// what to do about it. The zero value knows nothing and leads to no claim.
type Situation struct {
	// What the store said, read by one statement.
	State       records.State
	SameRequest bool // the stored fingerprint is this request's
	Holder      Holder
	Executor    records.ExecutorState // of the holder; "" if its row is gone
	Policy      records.Policy
	Stale       bool // the holder's heartbeat is older than its lease, by the database's clock
	// StaleRefused: a fence on the expired lease was refused, so the holder
	// is asked like any other.
	StaleRefused bool

	// What asking the holder has shown about exactly this executor and epoch.
	Evidence Evidence
	Reread   bool // the record was read again after that, and is unchanged

	// About this node and this request.
	MayClaim     bool // this node's executor is active and trusts its lease
	MayReconcile bool // there is a reconciler that may tell, and take-overs left
	Waiting      bool // somebody is still waiting for the answer
}

// Holder is who has the record, seen from this node.
type Holder int

const (
	// Another executor has it.
	Another Holder = iota
	// Here: this executor has it, and it is in its running set.
	Here
	// Orphaned: this executor has it in the store but is not running it. Its
	// reserve's reply was lost.
	Orphaned
)

// Evidence is what asking a holder has shown.
type Evidence int

const (
	// NotAsked: nothing yet. The zero value.
	NotAsked Evidence = iota
	// SaysRunning: it signed that it runs the record.
	SaysRunning
	// SaysNotRunning: it signed that it does not.
	SaysNotRunning
	// SaysReplaced: a newer boot of its slot signed.
	SaysReplaced
	// Failed: one probe brought no signed answer of the holder.
	Failed
	// ConfirmedDead: the failure was confirmed as protocol.md §4 demands.
	ConfirmedDead
	// Doubted: the suspicion was refuted, dropped or could not be acted upon.
	Doubted
)

// evidenceOf is what one probe's verdict is worth.
func evidenceOf(v probe.Verdict) Evidence {
	switch v {
	case probe.Running:
		return SaysRunning
	case probe.NotRunning:
		return SaysNotRunning
	case probe.Replaced:
		return SaysReplaced
	case probe.Unknown, probe.Stranger, probe.Down, probe.Silent:
		return Failed
	}
	return Failed
}

// Action is what to do next.
type Action int

const (
	// Reread the record from the store and decide again. The zero value, since
	// it does no harm.
	Reread Action = iota
	// Reserve the key: it is free.
	Reserve
	// Replay the stored response.
	Replay
	// Refuse the request: the key was used for another one.
	Refuse
	// AnswerUnknown: it was executed and nobody can tell what came of it.
	AnswerUnknown
	// AnswerInProgress: it still runs, and nobody here waits any longer.
	AnswerInProgress
	// ClaimUnknown: take the unknown record to ask its reconciler.
	ClaimUnknown
	// Join the execution on this node.
	Join
	// Probe the holder, once, on a fresh connection.
	Probe
	// Watch the holder that runs it: a long-poll.
	Watch
	// Confirm that the holder is dead.
	Confirm
	// FenceProbed: fence the holder on a confirmed failed probe.
	FenceProbed
	// FenceStale: fence the holder on its expired lease.
	FenceStale
	// TakeOver the record from a holder that is terminal or this executor.
	TakeOver
	// TakeOverSigned: take it from a holder that signed it does not run it.
	TakeOverSigned
	// Pause for a heartbeat, then read again and ask anew.
	Pause
)

// Decide is the protocol of a duplicate: from what is known to what to do. It
// is pure; testdata holds its scripts.
func Decide(s Situation) Action {
	switch s.State {
	case records.Released:
		return Reserve
	case records.Finalized:
		return ifSame(s, Replay)
	case records.Unknown:
		return ifSame(s, decideUnknown(s))
	case records.InProgress:
		return ifSame(s, decideInProgress(s))
	}
	return Reread
}

func ifSame(s Situation, a Action) Action {
	if !s.SameRequest {
		return Refuse
	}
	return a
}

// decideUnknown claims a record only once its work has ended: no finding holds
// while work that ignored its end may still send. An executor that cannot be
// asked is waited for until its lease has run out.
func decideUnknown(s Situation) Action {
	switch {
	case !s.MayReconcile || !s.MayClaim || s.Holder == Here:
		return AnswerUnknown
	case s.Holder == Orphaned, s.Executor == "", s.Executor.Terminal(), s.Stale, s.Evidence == SaysNotRunning:
		return ClaimUnknown
	case s.Evidence == NotAsked:
		return Probe
	}
	return AnswerUnknown
}

func decideInProgress(s Situation) Action {
	switch {
	case s.Holder == Here:
		return ifWaiting(s, Join)
	case s.Holder == Orphaned:
		return ifClaiming(s, TakeOver)
	case s.Executor.Terminal():
		return ifClaiming(s, TakeOver)
	case s.Stale && !s.StaleRefused:
		return ifClaiming(s, FenceStale)
	}
	return decideByEvidence(s)
}

// decideByEvidence handles a holder that the store believes to be alive. What
// would lead to a claim needs the record read again after the evidence: it may
// have been finished meanwhile.
func decideByEvidence(s Situation) Action {
	switch s.Evidence {
	case NotAsked:
		return Probe
	case SaysRunning:
		return ifWaiting(s, Watch)
	case SaysReplaced:
		if s.Reread { // the newer boot's registration has not fenced it yet, or is a lie
			return ifWaiting(s, Pause)
		}
		return Reread
	case SaysNotRunning:
		return ifReread(s, TakeOverSigned)
	case Failed:
		if s.Policy == records.PolicyLease {
			return ifWaiting(s, Pause) // only its lease can end it
		}
		return ifReread(s, Confirm)
	case ConfirmedDead: // the fence compares heartbeats, the take-over epochs: nothing to read
		return ifClaiming(s, FenceProbed)
	case Doubted:
		return ifWaiting(s, Pause)
	}
	return ifWaiting(s, Pause)
}

func ifWaiting(s Situation, a Action) Action {
	if !s.Waiting {
		return AnswerInProgress
	}
	return a
}

func ifClaiming(s Situation, a Action) Action {
	if !s.MayClaim {
		return ifWaiting(s, Pause) // another node will
	}
	return a
}

func ifReread(s Situation, a Action) Action {
	if !s.MayClaim {
		return ifWaiting(s, Pause)
	}
	if !s.Reread {
		return Reread
	}
	return a
}

// Recovery is all that the owner of an interrupted execution knows about it.
type Recovery struct {
	Takeovers int
	Limit     int  // take-overs allowed; beyond it the record is poison
	Asked     bool // Finding is an answer to this owner
	Finding   FindingKind
	Settling  bool // not_applied would be read too early: the predecessor's request may still be on its way
	Late      bool // the work deadline has passed
	Work      bool // the work is at hand and may be executed here
}

// RecoveryAction is what the owner of an interrupted execution does next.
type RecoveryAction int

const (
	// GiveUp: mark the record unknown. The zero value, since it runs nothing.
	GiveUp RecoveryAction = iota
	// Ask the reconciler.
	Ask
	// AskLater: with backoff.
	AskLater
	// Finish: finalize with the reconciler's response.
	Finish
	// Execute once, here, at this epoch.
	Execute
	// Free the key: nothing was done, and the work is not at hand.
	Free
)

// Recover is the protocol of an owner that did not begin the execution it
// owns: from what is known to what to do. It is pure.
func Recover(r Recovery) RecoveryAction {
	switch {
	case r.Takeovers > r.Limit:
		return GiveUp
	case !r.Asked:
		return unlessLate(r, Ask)
	}
	switch r.Finding {
	case Applied:
		return Finish
	case NotApplied:
		if r.Settling {
			return unlessLate(r, AskLater)
		}
		if r.Work {
			return Execute
		}
		return Free
	case Pending:
		return unlessLate(r, AskLater)
	case Undecidable:
		return GiveUp
	}
	return GiveUp
}

// unlessLate gives up asking after the deadline; a finding that is there is
// still acted upon.
func unlessLate(r Recovery, a RecoveryAction) RecoveryAction {
	if r.Late {
		return GiveUp
	}
	return a
}

// Trust is the arithmetic of an owner's belief in its own lease.
type Trust struct {
	Policy      records.Policy
	LeaseTTL    time.Duration
	Margin      time.Duration
	ProbeBudget time.Duration
}

// startGuard is kept between the last possible start of an effect and the end
// of an observer's probe budget.
const startGuard = time.Second

// MayRun reports whether work may go on so long after the last good heartbeat
// was *sent*: until a margin before the lease ends for others.
func (t Trust) MayRun(sinceSent time.Duration) bool { return sinceSent < t.LeaseTTL-t.Margin }

// StartLimit is how long after sending the last good heartbeat an effect may
// still begin. Under policy probe an observer may fence after its probe
// budget if no heartbeat lands, so a start comes only while one surely did.
func (t Trust) StartLimit() time.Duration {
	limit := t.LeaseTTL - t.Margin
	if t.Policy == records.PolicyProbe {
		limit = min(limit, t.ProbeBudget-startGuard)
	}
	return limit
}

// MayStart reports whether an effect may begin so long after the last good
// heartbeat was sent.
func (t Trust) MayStart(sinceSent time.Duration) bool { return sinceSent < t.StartLimit() }
