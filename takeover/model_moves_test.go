package takeover

import "strings"

// What happens by itself: time, faults, statements that reach the store, and
// requests that reach the service. Together with the processes' own moves
// these are all successors of a moment.

// modelEvent says who did what.
type modelEvent struct {
	who  who
	what string
}

func (e modelEvent) String() string {
	if e.who == nobody {
		return e.what
	}
	return strings.Replace(e.who.String()+" "+e.what, " 's", "'s", 1)
}

// timePasses by a second.
var timePasses = modelEvent{nobody, "a second passes"}

// modelYield takes one successor.
type modelYield func(modelEvent, modelState)

// successors yields every moment that may follow.
func (m *model) successors(s modelState, yield modelYield) {
	m.serve(s, yield)
	if m.over(&s) {
		return
	}
	m.pass(s, yield)
	m.outage(s, yield)
	for p := nodeA; p < who(m.nodes); p++ {
		m.faults(s, p, yield)
		m.arrivals(s, p, yield)
		m.registration(s, p, yield)
		m.beats(s, p, yield)
		m.drains(s, p, yield)
		m.replies(s, p, yield)
		m.courses(s, p, yield)
		m.tenures(s, p, yield)
	}
}

// over: nobody is left to do anything, and no statement is on its way.
func (m *model) over(s *modelState) bool {
	for p := range s.processes {
		q := &s.processes[p]
		if q.call.kind != noCall || q.stray != 0 || q.beating == beatOnItsWay ||
			q.life != dead && (q.course.at == looking || q.course.at == holding || q.course.at == notBegun && m.asks[p]) {
			return false
		}
	}
	return true
}

// pass lets a tick pass, unless something must happen first: what the setting
// bounds, or, in a healthy fleet, a heartbeat. Steady processes beat with it.
func (m *model) pass(s modelState, yield modelYield) {
	for _, r := range s.service.requests {
		if m.bounded && r.stage == reqOnWire && present-r.sentAt >= m.wire {
			return
		}
	}
	for p := nodeA; p < who(m.nodes); p++ {
		t := s.processes[p].tenure
		if m.timely && t.stage == toSend && present-t.begunAt >= m.gap || m.healthy && m.owesBeat(s, p) {
			return
		}
	}
	s.age()
	for p := nodeA; p < who(m.nodes); p++ {
		if m.steady[p] {
			m.beatSteadily(&s, p)
		}
	}
	yield(timePasses, s)
}

// owesBeat: a healthy process beats every tick, and the store takes it at
// once, unless it is down.
func (m *model) owesBeat(s modelState, p who) bool {
	q := &s.processes[p]
	if m.steady[p] || q.ended || !m.beatsNow(q) {
		return false
	}
	if q.beating == notBeating {
		return q.beatSent < present
	}
	return !s.store.down
}

func (m *model) beatSteadily(s *modelState, p who) {
	q := &s.processes[p]
	if q.life != alive || q.ended || q.leaving || s.store.down {
		return
	}
	store, ok := m.heartbeat(s.store, p)
	if !ok {
		q.ended = true
		return
	}
	s.store = store
	refute(s, p)
	q.sent, q.trulySent, q.beats = present, present, store.executors[p].beat
}

// refute remembers, for the properties, that a suspect has shown life.
func refute(s *modelState, p who) {
	for i := range s.processes {
		t := &s.processes[i].course.trail
		if t.executor == p && (t.confirming || Evidence(t.evidence) == ConfirmedDead) {
			t.refuted = true
		}
	}
}

// outage: the store stops taking statements, and comes back.
func (m *model) outage(s modelState, yield modelYield) {
	switch {
	case s.store.down:
		s.store.down = false
		yield(modelEvent{nobody, "the store is back"}, s)
	case s.left.outages > 0:
		s.store.down = true
		s.left.outages--
		yield(modelEvent{nobody, "the store goes down"}, s)
	}
}

// faults: a process stands still, goes on, or dies. Its statements and
// requests are on their way all the same.
func (m *model) faults(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if q.life == paused {
		n := s
		n.processes[p].life = alive
		yield(modelEvent{p, "goes on"}, n)
	}
	if q.life == dead || !m.faulty[p] {
		return
	}
	if q.life == alive && s.left.pauses > 0 {
		n := s
		n.left.pauses--
		n.processes[p].life = paused
		yield(modelEvent{p, "stands still"}, n)
	}
	if s.left.crashes > 0 {
		s.left.crashes--
		q.life = dead
		q.forget()
		yield(modelEvent{p, "dies"}, s)
	}
}

// forget keeps of a dead process only what is on its way.
func (q *modelProcess) forget() {
	gone := modelProcess{life: dead, stray: q.stray}
	if q.beating == beatOnItsWay {
		gone.beating = beatOnItsWay
	}
	if q.call.kind != noCall && q.call.stage != decided {
		gone.call, gone.course, gone.tenure, gone.reserves, gone.beats = q.call, q.course, q.tenure, q.reserves, q.beats
	}
	*q = gone
}

// arrivals are statements that reach the store.
func (m *model) arrivals(s modelState, p who, yield modelYield) {
	if s.store.down {
		return
	}
	m.beatArrives(s, p, yield)
	m.strayArrives(s, p, yield)
	q := &s.processes[p]
	if q.call.kind == noCall || q.call.stage == decided {
		return
	}
	if m.strays && q.call.kind == callReserve && q.stray == 0 && q.life == alive {
		n := s
		n.processes[p].stray = q.reserves
		yield(modelEvent{p, "sends its reserve again, the first is still on its way"}, n)
	}
	kind := q.call.kind
	if m.flaw == fencesNotQueued && (kind == callFenceProbed || kind == callFenceStale) {
		m.fenceUnqueued(s, p, yield)
		return
	}
	reply := m.execute(&s, p)
	if s.store.record.epoch > m.epochs {
		return // beyond what is explored
	}
	q.call.stage, q.call.reply = decided, reply
	if q.life == dead {
		q.forget()
	}
	yield(modelEvent{p, "'s " + kind.String() + " lands"}, s)
}

func (m *model) beatArrives(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if q.beating != beatOnItsWay {
		return
	}
	if s.left.losses > 0 && q.life != dead {
		n := s
		n.left.losses--
		n.processes[p].beating = notBeating
		yield(modelEvent{p, "'s heartbeat is lost"}, n)
	}
	store, ok := m.heartbeat(s.store, p)
	q.beating = beatRefused
	if ok {
		s.store, q.beating = store, beatLanded
		refute(&s, p)
	}
	if q.life == dead {
		q.forget()
	}
	yield(modelEvent{p, "'s heartbeat reaches the store"}, s)
}

// strayArrives: a copy of a reserve whose sender has long had its answer.
func (m *model) strayArrives(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	if q.stray == 0 {
		return
	}
	s.store, _ = m.reserve(s.store, p, q.stray)
	if s.store.record.epoch > m.epochs {
		return
	}
	q.stray = 0
	yield(modelEvent{p, "'s first copy of the reserve lands"}, s)
}

// fenceUnqueued is a fence that does not hold the fleet row: it judges by what
// it saw, and looks again only at the suspect's own row.
func (m *model) fenceUnqueued(s modelState, p who, yield modelYield) {
	q := &s.processes[p]
	c := q.suspicion(p)
	if q.call.stage == onItsWay {
		q.call.stage = looked
		if m.maySuspect(s.store, c) {
			q.call.reply = granted
		}
		yield(modelEvent{p, "'s fence looks at the rows"}, s)
		return
	}
	if q.call.reply == granted && s.store.executors[c.dead].state.live() && m.unrefuted(s.store, c) {
		s.store = fenced(s.store, c)
	}
	q.call.stage = decided
	yield(modelEvent{p, "'s fence commits"}, s)
}

func (q *modelProcess) suspicion(p who) modelSuspicion {
	t := q.course.trail
	return modelSuspicion{
		dead: t.executor, me: p, beatSeen: t.beat, stalePath: q.call.kind == callFenceStale,
		myBeat: t.ownBeat, n: t.needs,
	}
}

// execute has the store decide p's statement.
func (m *model) execute(s *modelState, p who) callReply {
	q := &s.processes[p]
	from, epoch := q.course.held.record, q.tenure.epoch
	var ok bool
	switch q.call.kind {
	case callReserve:
		return m.executeReserve(s, p)
	case callTakeOver:
		s.store, ok = m.takeOver(s.store, p, from.executor, from.epoch, false)
		return m.claimReply(s, p, ok)
	case callTakeOverSigned:
		s.store, ok = m.takeOver(s.store, p, from.executor, from.epoch, true)
		return m.claimReply(s, p, ok)
	case callClaimUnknown:
		s.store, ok = m.claimUnknown(s.store, p, from.epoch)
		return m.claimReply(s, p, ok)
	case callFenceProbed, callFenceStale:
		s.store, ok = m.fence(s.store, q.suspicion(p))
	case callFinalize:
		s.store, ok = m.ownersWrite(s.store, p, epoch, recFinalized)
	case callRelease:
		s.store, ok = m.ownersWrite(s.store, p, epoch, recReleased)
	case callMarkUnknown:
		s.store, ok = m.ownersWrite(s.store, p, epoch, recUnknown)
	case noCall:
	}
	if ok {
		return granted
	}
	return refused
}

// executeReserve answers with what stands there, if that is not the caller's.
func (m *model) executeReserve(s *modelState, p who) callReply {
	q := &s.processes[p]
	store, ok := m.reserve(s.store, p, q.reserves)
	s.store = store
	r := s.store.record
	mine := r.state == recInProgress && r.executor == p && r.attempt == q.reserves
	switch {
	case ok || mine:
		q.course.held = m.load(s.store)
		return granted
	case r.state == noRecord || r.state == recReleased:
		return notActive
	}
	m.found(&q.course, m.load(s.store))
	return refused
}

// claimReply recognises a claim whose first reply was lost, and says why
// another changed nothing.
func (m *model) claimReply(s *modelState, p who, ok bool) callReply {
	r, held := s.store.record, s.processes[p].course.held.record
	switch {
	case ok, r.state == recInProgress && r.executor == p && r.attempt == 0 && r.epoch == held.epoch+1:
		return granted
	case r.executor != held.executor || r.epoch != held.epoch || r.state != held.state:
		return refused
	case s.store.executors[p].state != rowActive:
		return notActive
	}
	return refused
}

// serve: requests arrive at the service, or never; it works on them, and the
// effect takes place. A service that knows fences compares and applies in one.
func (m *model) serve(s modelState, yield modelYield) {
	for i, r := range s.service.requests {
		n := s
		at := &n.service.requests[i]
		switch {
		case r.stage == reqWorking:
			at.stage = reqApplied
			n.service.applied++
			yield(modelEvent{r.by, "'s effect takes place"}, n)
			continue
		case r.stage != reqOnWire:
			continue
		case !m.fencing:
			at.stage = reqWorking
			yield(modelEvent{r.by, "'s request reaches the service"}, n)
		case r.epoch < s.service.fence:
			at.stage = reqRejected
			yield(modelEvent{r.by, "'s request is refused: its fence is old"}, n)
		default:
			at.stage = reqApplied
			n.service.applied++
			n.service.fence = r.epoch
			yield(modelEvent{r.by, "'s request reaches the service, its effect takes place"}, n)
		}
		if s.left.losses > 0 {
			n = s
			n.left.losses--
			n.service.requests[i].stage = reqRejected
			yield(modelEvent{r.by, "'s request is lost"}, n)
		}
	}
}

// begin is the first moment of a setting.
func (m *model) begin() modelState {
	s := modelState{left: m.faultsAllowed}
	for p := range who(m.nodes) {
		s.store.executors[p] = modelExecutor{state: rowActive, heartbeatAt: present, leaseSince: present - m.ttl - 1}
		s.processes[p] = modelProcess{sent: present, trulySent: present}
	}
	s.processes[nodeA].unregistered = m.registers
	if m.startsHeld {
		s.store.record = modelRecord{state: recInProgress, executor: nodeA, epoch: 1, attempt: 1}
		a := &s.processes[nodeA]
		a.entry, a.reserves, a.course.at = true, 1, holding
		a.tenure = modelTenure{stage: toStart, epoch: 1, first: true, work: m.work[nodeA]}
	}
	if m.startsDead {
		s.processes[nodeA] = modelProcess{life: dead}
		s.service.requests[0] = modelRequest{stage: reqOnWire, by: nodeA, epoch: 1, sentAt: present}
	}
	if m.startsUnknown {
		s.store.record = modelRecord{state: recUnknown, executor: nodeA, epoch: 1, attempt: 1}
		s.service.requests[0] = modelRequest{stage: reqOnWire, by: nodeA, epoch: 1, sentAt: present}
	}
	return s
}
