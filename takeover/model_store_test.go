package takeover

import "github.com/probate-dev/probate/records"

// The statements of protocol.md §4 (reserve, take over, owner's writes, beat,
// fence) and §6 (claim unknown), word for word: each is one decision over the
// rows as they are when it runs, and zero rows is false. Where a flaw is named
// the statement is spoilt on purpose.

// reserve: INSERT … SELECT … JOIN executors m ON m.id=$me AND m.state='active'
// WHERE NOT EXISTS (… NOT claimable) ON CONFLICT DO UPDATE SET …,
// epoch=r.epoch+1 WHERE claimable.
func (m *model) reserve(s modelStore, me who, token int8) (modelStore, bool) {
	claimable := s.record.state == noRecord || s.record.state == recReleased
	if s.executors[me].state != rowActive || !claimable {
		return s, false
	}
	s.record = modelRecord{state: recInProgress, executor: me, epoch: s.record.epoch + 1, attempt: token}
	return s, true
}

// takeOver: UPDATE records r SET executor_id=m.id, epoch=epoch+1, …,
// takeovers=takeovers+1 FROM executors m WHERE m.id=$me AND m.state='active'
// AND r.executor_id=$dead AND r.epoch=$e AND r.state='in_progress' AND
// ($signed_not_running OR $dead=$me OR EXISTS (… id=$dead AND state IN
// ('fenced','gone'))).
func (m *model) takeOver(s modelStore, me, dead who, e int8, signedNotRunning bool) (modelStore, bool) {
	r := &s.record
	if s.executors[me].state != rowActive && m.flaw != takerUntested ||
		r.executor != dead || r.epoch != e || r.state != recInProgress {
		return s, false
	}
	if !signedNotRunning && dead != me && !s.executors[dead].state.stored().Terminal() {
		return s, false
	}
	r.executor, r.epoch, r.attempt, r.takeovers = me, r.epoch+1, 0, r.takeovers+1
	if m.flaw == epochKept {
		r.epoch--
	}
	return s, true
}

// claimUnknown: UPDATE records SET state='in_progress', executor_id=$me,
// epoch=epoch+1 … FROM executors m WHERE m.id=$me AND m.state='active' AND
// epoch=$e AND state='unknown'.
func (m *model) claimUnknown(s modelStore, me who, e int8) (modelStore, bool) {
	r := &s.record
	if s.executors[me].state != rowActive || r.epoch != e || r.state != recUnknown {
		return s, false
	}
	r.state, r.executor, r.epoch, r.attempt = recInProgress, me, r.epoch+1, 0
	return s, true
}

// ownersWrite: … WHERE id=$r AND executor_id=$me AND epoch=$e AND
// state='in_progress'. Repeated after it landed it says so again.
func (m *model) ownersWrite(s modelStore, me who, e int8, to recordState) (modelStore, bool) {
	r := &s.record
	mine := r.executor == me && r.epoch == e
	switch {
	case mine && r.state == to:
		return s, true
	case mine && r.state == recInProgress:
	case m.flaw == completionByStateOnly && r.state == recInProgress:
	case m.flaw == unknownUnclaimed && r.epoch == e && r.state == recUnknown:
	default:
		return s, false
	}
	r.state = to
	return s, true
}

// heartbeat: UPDATE executors SET beat=beat+1, lease_since=CASE WHEN
// clock_timestamp()-heartbeat_at > lease_ttl/2 THEN clock_timestamp() ELSE
// lease_since END, heartbeat_at=clock_timestamp() WHERE id=$me AND state IN
// ('active','draining').
func (m *model) heartbeat(s modelStore, me who) (modelStore, bool) {
	e := &s.executors[me]
	if !e.state.live() {
		if m.flaw != fencedRevived || e.state != rowFenced {
			return s, false
		}
		e.state = rowActive
	}
	if present-e.heartbeatAt > m.ttl/2 {
		e.leaseSince = present
	}
	e.beat, e.heartbeatAt = e.beat+1, present
	return s, true
}

// modelSuspicion is a case against an executor.
type modelSuspicion struct {
	dead, me  who
	beatSeen  int8
	stalePath bool
	myBeat, n int8 // my beat at the first failure, and how many more must have landed
}

// fence: UPDATE executors d SET state='fenced', … WHERE d.id=$dead AND d.state
// IN ('active','draining') AND d.beat=$beat_seen AND unprotected AND observed
// AND unbraked. A suspect that is terminal is dead already.
func (m *model) fence(s modelStore, c modelSuspicion) (modelStore, bool) {
	switch {
	case !s.executors[c.dead].state.live():
		return s, true
	case !m.maySuspect(s, c) || !m.unrefuted(s, c):
		return s, false
	}
	return fenced(s, c), true
}

func fenced(s modelStore, c modelSuspicion) modelStore {
	d := &s.executors[c.dead]
	d.state, d.fencedAt = rowFenced, present
	return s
}

// unrefuted: d.beat=$beat_seen.
func (m *model) unrefuted(s modelStore, c modelSuspicion) bool {
	return s.executors[c.dead].beat == c.beatSeen || m.flaw == fenceIgnoresBeat
}

// maySuspect is what a fence demands besides the beat.
func (m *model) maySuspect(s modelStore, c modelSuspicion) bool {
	return m.unprotected(s, c) && m.observed(s, c) && m.unbraked(s)
}

// unprotected: (d.policy='probe' AND NOT $stale_path) OR d.heartbeat_at <
// clock_timestamp() - d.lease_ttl.
func (m *model) unprotected(s modelStore, c modelSuspicion) bool {
	return m.believed() == records.PolicyProbe && !c.stalePath || s.executors[c.dead].heartbeatAt < present-m.ttl
}

// observed: EXISTS (… m.id=$me AND m.state='active' AND m.heartbeat_at >
// clock_timestamp() - m.lease_ttl/2 AND (NOT $stale_path OR m.lease_since <
// clock_timestamp() - m.lease_ttl) AND m.beat >= $my_beat_at_first_failure + $n).
func (m *model) observed(s modelStore, c modelSuspicion) bool {
	o := s.executors[c.me]
	return o.state == rowActive && o.heartbeatAt > present-m.ttl/2 &&
		(!c.stalePath || o.leaseSince < present-m.ttl || m.flaw == outageForgotten) &&
		o.beat >= c.myBeat+c.n
}

// unbraked: (SELECT count(*) … WHERE fenced_at > clock_timestamp() -
// d.lease_ttl) < greatest(1, (SELECT count(*) … WHERE state IN ('active',
// 'draining')) / 2).
func (m *model) unbraked(s modelStore) bool {
	fenced, live := 0, 0
	for _, e := range s.executors {
		if e.state == rowFenced && e.fencedAt > present-m.ttl {
			fenced++
		}
		if e.state.live() {
			live++
		}
	}
	return fenced < max(1, live/2)
}

// load reads the record with its executor; stale is by the store's clock.
func (m *model) load(s modelStore) modelHeld {
	h := modelHeld{record: s.record}
	if s.record.state != noRecord {
		h.executor = m.row(s, s.record.executor)
		h.stale = present-s.executors[s.record.executor].heartbeatAt > m.ttl
	}
	return h
}

// row is what a reader remembers of an executor's row.
func (m *model) row(s modelStore, p who) modelExecutor {
	e := s.executors[p]
	return modelExecutor{state: e.state, beat: e.beat, fencedAt: e.fencedAt}
}

// believed is what the fleet takes the suspect's policy for.
func (m *model) believed() records.Policy {
	if m.flaw == observersPolicy {
		return records.PolicyProbe
	}
	return m.policy
}
