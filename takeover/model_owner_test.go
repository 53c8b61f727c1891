package takeover

import "github.com/probate-dev/probate/records"

// The owner: its lease, the execution of work, and the recovery of an
// interrupted one.

// beats are the moves of a process' heartbeat loop. A reply may come late; a
// beat or its reply may be lost. A steady process is not asked: it beats as
// time passes.
func (m *model) beats(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if m.steady[p] || q.life != alive || q.ended {
		return
	}
	switch q.beating {
	case notBeating:
		if m.beatsNow(q) && q.beatSent < present {
			q.beating, q.beatSent = beatOnItsWay, present
			yield(modelEvent{p, "sends a heartbeat"}, s)
		}
	case beatLanded:
		if s.left.losses > 0 {
			n := s
			n.left.losses--
			n.processes[p].beating = notBeating
			yield(modelEvent{p, "never learns that its heartbeat landed"}, n)
		}
		q.beating = notBeating
		m.renew(q)
		q.beats = s.store.executors[p].beat
		yield(modelEvent{p, "learns that its heartbeat landed"}, s)
	case beatRefused:
		q.beating, q.ended = notBeating, true
		yield(modelEvent{p, "learns that it was fenced"}, s)
	case beatOnItsWay:
	}
}

// beatsNow: until it has left, draining or not.
func (m *model) beatsNow(q *modelProcess) bool {
	return !q.unregistered && !q.leaving && (!q.draining || m.flaw != beatsStopAtDrain)
}

// renew is lease.renew: the trust counts from the sending of the beat, and a
// reply that comes after its end renews nothing.
func (m *model) renew(q *modelProcess) {
	sent := q.beatSent
	if m.flaw == deadlineFromReply {
		sent = present
	}
	if !m.trust().MayRun(elapsedTicks(sent)) || sent < q.sent {
		return
	}
	q.sent, q.trulySent = sent, q.beatSent
}

// registration: the row stands since the beginning, but the process has not
// heard. It asks again, and must count from its first asking.
func (m *model) registration(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if !q.unregistered || q.life != alive || s.store.down {
		return
	}
	q.unregistered = false // and its trust counts from when it first asked
	if m.flaw == registrationRepeatTrusted {
		q.sent = present
	}
	yield(modelEvent{p, "repeats its registration and learns that it is registered"}, s)
}

// trusts reports whether the process believes in its lease. It is
// boot.mayClaim without the drain.
func (m *model) trusts(q *modelProcess) bool {
	return !q.ended && !q.unregistered && (m.trust().MayRun(elapsedTicks(q.sent)) || m.flaw == noSelfFence)
}

// mayStart is lease.awaitStart, at one moment.
func (m *model) mayStart(q *modelProcess) bool {
	return m.trusts(q) && (m.trust().MayStart(elapsedTicks(q.sent)) || m.flaw == noSelfFence)
}

// tenures are the moves of a process that holds the record.
func (m *model) tenures(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	t := &q.tenure
	if q.life != alive || q.course.at != holding {
		return
	}
	switch t.stage {
	case toStart:
		m.start(s, p, yield)
	case toWork:
		m.toil(s, p, yield)
	case toSend:
		if m.fickle {
			n := s
			n.processes[p].settle(callRelease)
			yield(modelEvent{p, "gives the work up before anything was sent"}, n)
		}
		m.send(s, p, yield)
	case toFinish:
		m.finish(s, p, yield)
	case toRecover:
		m.recover(s, p, yield)
	case noTenure, toSettle:
	}
}

// start is tenure.execute up to the check; what follows the check may come as
// late as the setting's longest pause.
func (m *model) start(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	t := &q.tenure
	if m.mayStart(q) {
		if m.slow {
			t.stage = toWork
			yield(modelEvent{p, "begins its work"}, s)
			return
		}
		t.stage, t.begunAt = toSend, present
		yield(modelEvent{p, "may begin the effect"}, s)
		return
	}
	if t.first {
		q.settle(callRelease)
		yield(modelEvent{p, "gives up before the work began"}, s)
		return
	}
	q.entry, q.tenure, q.course = false, modelTenure{}, modelCourse{at: answered}
	yield(modelEvent{p, "leaves the record to others, nothing begun"}, s)
}

// toil is work that comes to its effect late: it may still begin while its
// context lives.
func (m *model) toil(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if m.trusts(q) {
		q.tenure.stage, q.tenure.begunAt = toSend, present
		yield(modelEvent{p, "comes to the effect"}, s)
	}
}

func (m *model) send(s modelState, p who, yield modelYield) {
	t := &s.processes[p].tenure
	for i := range s.service.requests {
		r := &s.service.requests[i]
		if r.stage == noRequest {
			*r = modelRequest{stage: reqOnWire, by: p, epoch: t.epoch, sentAt: present}
			t.stage = toFinish
			yield(modelEvent{p, "sends the effect's request"}, s)
			return
		}
	}
}

// finish is what the work comes to once its request was sent.
func (m *model) finish(s modelState, p who, yield modelYield) {
	if m.fickle {
		n := s
		n.processes[p].uncertain(m)
		yield(modelEvent{p, "ends its work with an uncertain outcome"}, n)
	}
	for _, r := range s.service.requests {
		if r.stage == reqApplied && r.by == p && r.epoch == s.processes[p].tenure.epoch {
			s.processes[p].settle(callFinalize)
			yield(modelEvent{p, "has the effect's response, finalizes"}, s)
			return
		}
	}
}

// uncertain is tenure.conclude after Uncertain.
func (q *modelProcess) uncertain(m *model) {
	if m.flaw == sentAndReleased {
		q.settle(callRelease)
		return
	}
	if m.noReconciler {
		q.settle(callMarkUnknown)
		return
	}
	t := &q.tenure
	*t = modelTenure{stage: toRecover, epoch: t.epoch, takeovers: t.takeovers, endedAt: present}
}

// settle sends the tenure's last write.
func (q *modelProcess) settle(kind callKind) {
	q.tenure.stage = toSettle
	q.call = modelCall{kind: kind}
}

// recover is tenure.recover: it does what Recover says.
func (m *model) recover(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	t := &q.tenure
	if m.deadlines && !t.late {
		n := s
		n.processes[p].tenure.late = true
		yield(modelEvent{p, "passes its work deadline"}, n)
	}
	action := Recover(Recovery{
		Takeovers: int(t.takeovers), Limit: m.limit + m.indulgence(), Asked: t.asked, Finding: FindingKind(t.finding),
		Settling: t.asked && m.settling(t), Late: t.late, Work: t.work,
	})
	m.taken.recoveries[action]++
	switch action {
	case Ask:
		if m.mayStart(q) {
			s.service, t.finding = m.find(s.service, t.epoch)
			t.asked, t.settling = true, present < t.endedAt+m.settle
			yield(modelEvent{p, "asks the reconciler: " + FindingKind(t.finding).String()}, s)
		}
	case AskLater:
		t.asked, t.settling, t.finding = false, false, 0
		yield(modelEvent{p, "waits to ask the reconciler again"}, s)
	case Finish:
		q.settle(callFinalize)
		yield(modelEvent{p, "finalizes with the reconciler's response"}, s)
	case Execute:
		t.stage, t.asked, t.settling, t.finding = toStart, false, false, 0
		yield(modelEvent{p, "decides to execute"}, s)
	case Free:
		q.settle(callRelease)
		yield(modelEvent{p, "frees the key"}, s)
	case GiveUp:
		q.settle(callMarkUnknown)
		yield(modelEvent{p, "gives up: nobody can tell"}, s)
	}
}

// indulgence is how many take-overs too many are allowed.
func (m *model) indulgence() int {
	if m.flaw == poisonRetried {
		return 1
	}
	return 0
}

// settling: not applied counts only if it was asked for when the predecessor's
// last request must have arrived. What counts is when the service was asked,
// not when the answer came.
func (m *model) settling(t *modelTenure) bool {
	if m.flaw == settleIgnored {
		return false
	}
	if m.flaw == settleJudgedByAnswer {
		return present < t.endedAt+m.settle
	}
	return t.settling
}

// find is what the reconciler is told by the service: what was applied, else
// that something is worked on, which is the contract, else not applied. One
// that knows fences is told the epoch and refuses smaller ones from then on.
func (m *model) find(s modelService, epoch int8) (modelService, uint8) {
	if m.noReconciler {
		return s, uint8(Undecidable)
	}
	if m.fencing {
		s.fence = max(s.fence, epoch)
	}
	found := NotApplied
	for _, r := range s.requests {
		if r.stage == reqWorking {
			found = Pending
		}
	}
	if s.applied > 0 {
		found = Applied
	}
	return s, uint8(found)
}

// drains are the moves of a process that was told to leave: nothing new is
// claimed, what it has is finished, then it is gone.
func (m *model) drains(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	row := &s.store.executors[p]
	if !m.leaves[p] || q.life != alive || q.ended {
		return
	}
	switch {
	case !q.draining:
		q.draining = true
		yield(modelEvent{p, "is told to leave"}, s)
	case s.store.down:
	case row.state == rowActive:
		row.state = rowDraining
		yield(modelEvent{p, "is draining by the store"}, s)
	case row.state == rowDraining && !q.entry && q.stray == 0 && q.beating != beatOnItsWay:
		q.leaving, row.state = true, rowGone
		yield(modelEvent{p, "is gone"}, s)
	}
}

func (m *model) trust() Trust {
	return Trust{
		Policy:   m.policy,
		LeaseTTL: m.ttl.duration(), Margin: m.margin.duration(), ProbeBudget: m.budget.duration(),
	}
}

// startLimit is the one in protocol.md §5, once more and in ticks.
func (m *model) startLimit() tick {
	if m.policy == records.PolicyProbe {
		return min(m.ttl-m.margin, m.budget-1)
	}
	return m.ttl - m.margin
}
