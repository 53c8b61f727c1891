package takeover

import "github.com/probate-dev/probate/records"

// What must hold, in the words of protocol.md §9. A property looks at one
// step: what was, who acted, what is. Memory that it needs is in the moment.

type property struct {
	id   string
	says string
	// promised: only where the setting gives what the promise rests on.
	promised func(m *model) bool
	holds    func(m *model, before, after *modelState, e modelEvent) bool
}

func always(*model) bool { return true }

var properties = []property{
	{"I1", "a key is finalized at most once per claim, by the then-current (executor, epoch)", always, finalizedByHolder},
	{"I2", "epochs never fall; each has one executor; they grow only by claim, take-over or reconcile claim", always, epochsGrow},
	{"I3", "after fenced commits no beat of that boot commits", always, noBeatAfterFence},
	{"I4 lease", "policy lease: no fence within TTL of a beat", always, noFenceWithinLease},
	{"I4 probe", "policy probe: no fence if a beat landed after the first failed probe of the case", always, noFenceAfterLife},
	{"I4 observer", "no fence by an executor that is itself not active", always, fencedByActive},
	{"I5", "a record changes hands only after a fence, a gone, a signed NotRunning, or from itself", always, handsChange},
	{"I7", "nothing starts after the owner's own deadline", always, startsInTime},
	{"I12", "a healthy fleet fences nobody, whatever the store does", (*model).isHealthy, fencesNobody},
	{"claim", "only an active executor claims", always, claimedByActive},
	{"drain", "a process that was told to leave asks for no claim", always, leaverClaimsNothing},
	{"poison", "nothing is executed after more take-overs than allowed", always, poisonLeft},
	{"release", "a released record has no effect", (*model).once, releasedUntouched},
	{"exclusive", "no two live executors: an effect starts only under the current claim", (*model).exclusive, startsUnderClaim},
	{"once", "the effect is applied at most once", (*model).once, appliedOnce},
}

func (m *model) isHealthy() bool { return m.healthy }

// exclusive: pauses between a check and its effect are shorter than the margin,
// and who refuses or stays silent for the budget is not merely cut off.
func (m *model) exclusive() bool {
	return m.timely && (m.policy == records.PolicyLease || !m.lossy && !m.refusing)
}

// once: the service refuses old fences, or requests on the wire arrive before
// the settle time has passed and nobody starts one later.
func (m *model) once() bool { return m.fencing || m.exclusive() && m.bounded }

func finalizedByHolder(_ *model, before, after *modelState, e modelEvent) bool {
	was, is := before.store.record, after.store.record
	if is.state != recFinalized || was.state == recFinalized {
		return true
	}
	return was.state == recInProgress && was.executor == e.who && was.epoch == before.processes[e.who].tenure.epoch &&
		is.executor == was.executor && is.epoch == was.epoch
}

func epochsGrow(_ *model, before, after *modelState, e modelEvent) bool {
	was, is := before.store.record, after.store.record
	if is.epoch == was.epoch {
		return is.executor == was.executor
	}
	return is.epoch == was.epoch+1 && is.executor == e.who && is.state == recInProgress
}

func claimedByActive(_ *model, before, after *modelState, _ modelEvent) bool {
	is := after.store.record
	return is.epoch == before.store.record.epoch || before.store.executors[is.executor].state == rowActive
}

func noBeatAfterFence(_ *model, before, after *modelState, _ modelEvent) bool {
	for p, was := range before.store.executors {
		if after.store.executors[p].beat != was.beat && !was.state.live() {
			return false
		}
	}
	return true
}

// fencedNow is the executor that this step fenced, or nobody.
func fencedNow(before, after *modelState) who {
	for p := range before.store.executors {
		if before.store.executors[p].state != rowFenced && after.store.executors[p].state == rowFenced {
			return who(p)
		}
	}
	return nobody
}

func noFenceWithinLease(m *model, before, after *modelState, e modelEvent) bool {
	d := fencedNow(before, after)
	if d == nobody || m.policy == records.PolicyProbe && before.processes[e.who].call.kind == callFenceProbed {
		return true
	}
	return present-before.store.executors[d].heartbeatAt > m.ttl
}

func noFenceAfterLife(m *model, before, after *modelState, e modelEvent) bool {
	d := fencedNow(before, after)
	if d == nobody || m.policy != records.PolicyProbe || before.processes[e.who].call.kind != callFenceProbed {
		return true
	}
	return !before.processes[e.who].course.trail.refuted
}

func fencedByActive(_ *model, before, after *modelState, e modelEvent) bool {
	return fencedNow(before, after) == nobody || before.store.executors[e.who].state == rowActive
}

func fencesNobody(_ *model, before, after *modelState, _ modelEvent) bool {
	return fencedNow(before, after) == nobody
}

func handsChange(_ *model, before, after *modelState, _ modelEvent) bool {
	was, is := before.store.record, after.store.record
	if was.state != recInProgress || is.epoch == was.epoch && is.executor == was.executor {
		return true
	}
	return !before.store.executors[was.executor].state.live() ||
		before.signed&(1<<was.epoch) != 0 || is.executor == was.executor
}

// startsInTime: the deadline counts from when the last acknowledged beat was
// truly sent.
func startsInTime(m *model, before, after *modelState, e modelEvent) bool {
	if e.who == nobody || before.processes[e.who].tenure.stage == toSend || after.processes[e.who].tenure.stage != toSend {
		return true
	}
	return present-before.processes[e.who].trulySent < m.startLimit()
}

func startsUnderClaim(_ *model, before, after *modelState, e modelEvent) bool {
	for i, is := range after.service.requests {
		if before.service.requests[i].stage == noRequest && is.stage == reqOnWire {
			r := before.store.record
			return r.state == recInProgress && r.executor == e.who && r.epoch == is.epoch
		}
	}
	return true
}

func appliedOnce(_ *model, _, after *modelState, _ modelEvent) bool {
	return after.service.applied <= 1
}

func releasedUntouched(_ *model, _, after *modelState, _ modelEvent) bool {
	return after.store.record.state != recReleased || after.service.applied == 0
}

func leaverClaimsNothing(_ *model, before, after *modelState, e modelEvent) bool {
	if e.who == nobody || !before.processes[e.who].draining || before.processes[e.who].call.kind != noCall {
		return true
	}
	switch after.processes[e.who].call.kind {
	case callReserve, callTakeOver, callTakeOverSigned, callClaimUnknown:
		return false
	case noCall, callFenceProbed, callFenceStale, callFinalize, callRelease, callMarkUnknown:
	}
	return true
}

func poisonLeft(m *model, _, after *modelState, e modelEvent) bool {
	return e.who == nobody || after.processes[e.who].tenure.stage != toStart ||
		int(after.processes[e.who].tenure.takeovers) <= m.limit
}
