package takeover

// A duplicate's way through the protocol. Each step is what Decide says about
// what the process knows, and that may be long out of date.

// courses are the moves of a process that was asked for the record.
func (m *model) courses(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if q.life != alive || q.leaving || q.call.kind != noCall {
		return
	}
	switch {
	case q.course.at == notBegun && m.asks[p]:
		q.course.at = looking
		m.enter(s, p, yield)
	case q.course.at == looking && q.course.trail.confirming:
		m.confirm(s, p, yield)
	case q.course.at == looking:
		m.step(s, p, yield)
	}
}

// enter is course.reserve.
func (m *model) enter(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if m.feud || !m.mayClaim(q) {
		yield(modelEvent{p, "is asked for the record and may only look"}, s)
		return
	}
	q.reserves++
	q.entry = m.flaw != entryAfterReserve
	q.call = modelCall{kind: callReserve}
	yield(modelEvent{p, "is asked for the record: sends a reserve"}, s)
}

// mayClaim is boot.mayClaim.
func (m *model) mayClaim(q *modelProcess) bool {
	return m.trusts(q) && (!q.draining || m.flaw == drainForgotten)
}

// situation is course.situation.
func (m *model) situation(s *modelState, p who) Situation {
	q := &s.processes[p]
	h, t := q.course.held, q.course.trail
	situation := Situation{
		State: h.record.state.stored(), SameRequest: true,
		Executor: h.executor.state.stored(), Policy: m.believed(),
		Stale: h.stale, StaleRefused: t.staleRefused,
		Evidence: Evidence(t.evidence), Reread: t.reread,
		MayClaim:     m.mayClaim(q),
		MayReconcile: !m.noReconciler && int(h.record.takeovers) <= m.limit,
		Waiting:      !m.handsOff[p],
	}
	if h.record.state != noRecord && h.record.executor == p {
		situation.Holder = Orphaned
		if q.entry {
			situation.Holder = Here
		}
	}
	return situation
}

// step is course.step.
func (m *model) step(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	c := &q.course
	action := Decide(m.situation(&s, p))
	m.taken.actions[action]++
	switch action {
	case Reread:
		m.reread(s, p, yield)
	case Reserve:
		m.enter(s, p, yield)
	case Replay, Refuse, AnswerUnknown, AnswerInProgress:
		*c = modelCourse{at: answered}
		yield(modelEvent{p, "answers: " + action.String()}, s)
	case Probe, Watch:
		m.probe(s, p, action, yield)
	case Confirm:
		c.trail.suspected, c.trail.confirming, c.trail.since = true, true, present
		c.trail.beat, c.trail.ownBeat = c.held.executor.beat, q.beats
		yield(modelEvent{p, "begins to confirm"}, s)
	case FenceProbed:
		m.claim(s, p, callFenceProbed, yield)
	case FenceStale:
		c.trail.suspected, c.trail.beat, c.trail.ownBeat = true, c.held.executor.beat, q.beats
		m.claim(s, p, callFenceStale, yield)
	case TakeOver:
		m.claim(s, p, callTakeOver, yield)
	case TakeOverSigned:
		m.claim(s, p, callTakeOverSigned, yield)
	case ClaimUnknown:
		m.claim(s, p, callClaimUnknown, yield)
	case Pause:
		c.pause()
		yield(modelEvent{p, "waits a while, to read and ask anew"}, s)
	case Join:
		panic("joined an execution of its own: a process has one flight here")
	}
}

// reread is course.reread: evidence about another holder or epoch is
// forgotten.
func (m *model) reread(s modelState, p who, yield modelYield) {
	if s.store.down {
		return
	}
	q := &s.processes[p]
	held := m.load(s.store)
	if m.feud {
		held = m.loadOther(s.store, p)
	}
	if held.record.state == noRecord {
		m.enter(s, p, yield)
		return
	}
	m.found(&q.course, held)
	yield(modelEvent{p, "reads the record"}, s)
}

// found is course.found.
func (m *model) found(c *modelCourse, h modelHeld) {
	another := h.record.executor != c.trail.executor || h.record.epoch != c.trail.epoch
	if another && m.flaw != evidenceOutlivesEpoch {
		c.trail = modelTrail{executor: h.record.executor, epoch: h.record.epoch}
	} else {
		c.trail.reread = true
	}
	c.held = h
}

// saw notes evidence, and has the record read again where Decide wants that.
func (c *modelCourse) saw(e Evidence) {
	c.trail.evidence, c.trail.reread = uint8(e), false
}

// doubt drops the case.
func (c *modelCourse) doubt() {
	old := c.trail
	c.trail = modelTrail{
		executor: old.executor, epoch: old.epoch,
		evidence: uint8(Doubted), staleRefused: old.staleRefused, notRunning: old.notRunning,
	}
}

// pause forgets the evidence and the reading.
func (c *modelCourse) pause() {
	c.trail = modelTrail{executor: c.trail.executor, epoch: c.trail.epoch}
	c.held = modelHeld{}
}

// probe asks the holder. It answers if it can be reached and does not stand
// still; what it signs is remembered.
func (m *model) probe(s modelState, p who, action Action, yield modelYield) {
	q := &s.processes[p]
	h := s.processes[p].course.held.record
	suspect := &s.processes[h.executor]
	if m.lossy || m.refusing || suspect.life != alive {
		n := s
		c := &n.processes[p].course
		if action == Probe {
			c.saw(Failed)
			yield(modelEvent{p, "probes " + h.executor.String() + ": no answer"}, n)
		} else {
			c.saw(NotAsked)
			yield(modelEvent{p, "watches " + h.executor.String() + ": the watch breaks"}, n)
		}
	}
	if suspect.life != alive {
		return
	}
	signature := "running"
	if suspect.entry || m.feud {
		q.course.saw(SaysRunning)
	} else {
		signature = "not running"
		q.course.saw(SaysNotRunning)
		q.course.trail.notRunning = present
		s.signed |= 1 << h.epoch
	}
	yield(modelEvent{p, "asks " + h.executor.String() + ", which signs: " + signature}, s)
}

// confirm is what probe.Confirm may come to. A refused address is honest: it
// is the one of a process that has died. Silence must last for the budget, and
// be heard then.
func (m *model) confirm(s modelState, p who, yield modelYield) {
	t := s.processes[p].course.trail
	life := s.processes[t.executor].life
	conclude := func(needs int8, what string) {
		n := s
		c := &n.processes[p].course
		c.saw(ConfirmedDead)
		c.trail.confirming, c.trail.since, c.trail.needs = false, 0, needs
		yield(modelEvent{p, what}, n)
	}
	if life == dead || m.refusing {
		conclude(0, "finds that "+t.executor.String()+" refuses, and so does a witness")
	}
	if present-t.since >= m.budget && (life != alive || m.lossy || m.refusing) {
		conclude(2, "has not heard from "+t.executor.String()+" for the probe budget")
	}
	if life == alive {
		s.processes[p].course.doubt()
		yield(modelEvent{p, "drops its suspicion"}, s)
	}
}

// claim sends a statement that needs a running claim, or none.
func (m *model) claim(s modelState, p who, kind callKind, yield modelYield) {
	q := &s.processes[p]
	c := &q.course
	takes := kind == callTakeOver || kind == callTakeOverSigned || kind == callClaimUnknown
	switch {
	case takes && m.feud:
		*c = modelCourse{at: answered}
		yield(modelEvent{p, "takes the other record"}, s)
		return
	case kind == callClaimUnknown && m.flaw == unknownUnclaimed:
		q.hold(c.held.record.epoch, c.held.record.takeovers, m.endOf(c), m.work[p])
		yield(modelEvent{p, "reconciles the unknown record without a claim"}, s)
		return
	}
	q.entry = q.entry || takes
	q.call = modelCall{kind: kind}
	yield(modelEvent{p, "sends a " + kind.String()}, s)
}

// hold begins a tenure that must recover first.
func (q *modelProcess) hold(epoch, takeovers int8, endedAt tick, work bool) {
	q.entry = true
	q.course = modelCourse{at: holding}
	q.tenure = modelTenure{stage: toRecover, epoch: epoch, takeovers: takeovers, endedAt: endedAt, work: work}
}

// endOf is claim.go's: when the predecessor can last have begun a request.
func (m *model) endOf(c *modelCourse) tick {
	switch {
	case c.trail.notRunning != 0:
		return c.trail.notRunning
	case c.held.executor.state != rowFenced:
		return present
	}
	return c.held.executor.fencedAt
}

// replies are what a process does once the store has answered its statement.
func (m *model) replies(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if q.life != alive || q.call.kind == noCall || q.call.stage != decided {
		return
	}
	if s.left.losses > 0 {
		n := s
		n.left.losses--
		n.processes[p].call = modelCall{kind: q.call.kind}
		yield(modelEvent{p, "loses the reply to its " + q.call.kind.String() + ", sends it again"}, n)
	}
	call := q.call
	q.call = modelCall{}
	c := &q.course
	verdict := [...]string{"refused", "refused, it is not active", "granted"}[call.reply]
	switch call.kind {
	case callReserve:
		q.reserved(call.reply, m.work[p])
	case callTakeOver, callTakeOverSigned, callClaimUnknown:
		m.claimed(q, call, m.work[p])
	case callFenceProbed, callFenceStale:
		switch {
		case call.reply == granted:
			c.trail = modelTrail{executor: c.trail.executor, epoch: c.trail.epoch, notRunning: c.trail.notRunning}
			c.held.executor = m.row(s.store, c.held.record.executor)
		case call.kind == callFenceProbed:
			c.doubt()
		default:
			c.doubt()
			c.trail.evidence, c.trail.staleRefused = uint8(NotAsked), true
		}
	case callFinalize, callRelease, callMarkUnknown:
		q.entry, q.tenure = false, modelTenure{}
		*c = modelCourse{at: answered}
		if call.reply != granted && m.returns[p] { // overtaken: a duplicate of the successor
			*c = modelCourse{at: looking}
		}
	case noCall:
	}
	yield(modelEvent{p, "learns that its " + call.kind.String() + " was " + verdict}, s)
}

// reserved is the end of course.reserve. What was read with a refusal is in
// the course already.
func (q *modelProcess) reserved(reply callReply, work bool) {
	q.entry = reply == granted
	switch reply {
	case granted:
		epoch := q.course.held.record.epoch
		q.course = modelCourse{at: holding}
		q.tenure = modelTenure{stage: toStart, epoch: epoch, first: true, work: work}
	case notActive:
		q.course = modelCourse{at: answered}
	case refused:
	}
}

// claimed is the end of course.claim.
func (m *model) claimed(q *modelProcess, call modelCall, work bool) {
	c := &q.course
	r := c.held.record
	switch call.reply {
	case granted:
		takeovers := r.takeovers
		if call.kind != callClaimUnknown {
			takeovers++
		}
		q.hold(r.epoch+1, takeovers, m.endOf(c), work)
		return
	case notActive:
		c.pause()
	case refused:
		c.held = modelHeld{} // somebody was faster
	}
	q.entry = false
}

// loadOther is, in a feud, a record of the other's that has nothing to do with
// ours: a reason for A to suspect B, and for B to suspect A.
func (m *model) loadOther(s modelStore, p who) modelHeld {
	s.record = modelRecord{state: recInProgress, executor: nodeA + nodeB - p, epoch: 1}
	return m.load(s)
}
