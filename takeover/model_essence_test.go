package takeover

// Two moments that nobody can tell apart by what may still happen are one.
// With that the search ends although time does not: a clock has no hour, a
// heartbeat no number, and what nobody will look at again is forgotten.

// present is what every clock always shows; a time of zero is none.
const present tick = 50

// essence is the moment without what no rule can see.
func (m *model) essence(s modelState) modelState {
	m.numberBeats(&s)
	for p := range s.processes {
		m.forgetTimes(&s, who(p))
		h, t := &s.processes[p].course.held, &s.processes[p].tenure
		h.stale = h.stale && h.executor.state.live()
		if t.stage != toSend {
			t.begunAt = 0
		}
		if t.stage != toRecover {
			t.endedAt = 0
		}
		if t.stage == toFinish || t.stage == toSettle {
			t.first, t.work = false, false
		}
	}
	s.signed &= 1 << s.store.record.epoch
	requests := s.service.requests
	s.service.requests = [4]modelRequest{}
	kept := 0
	for _, r := range requests {
		if r = s.visible(r); r.stage != noRequest {
			s.service.requests[kept] = r
			kept++
		}
	}
	return s
}

// forgetTimes lets no time lie further back than a rule looks.
func (m *model) forgetTimes(s *modelState, p who) {
	q, e := &s.processes[p], &s.store.executors[p]
	if q.beating == notBeating && q.beatSent != present {
		q.beatSent = 0
	}
	if q.course.at == answered {
		q.sent, q.trulySent = 0, 0 // it claims and starts nothing any more
	}
	within(m.ttl-m.margin, &q.sent, &q.trulySent, &q.beatSent)
	within(m.settle, &q.tenure.endedAt, &q.course.held.executor.fencedAt, &q.course.trail.notRunning)
	within(m.budget, &q.course.trail.since)
	within(m.gap, &q.tenure.begunAt)
	if e.state.live() {
		within(m.ttl+1, &e.heartbeatAt, &e.leaseSince)
		return
	}
	e.heartbeatAt, e.leaseSince = 0, 0
	within(max(m.ttl, m.settle), &e.fencedAt)
}

// visible is a request without what nobody asks for any more; none, if its
// response is not awaited.
func (s *modelState) visible(r modelRequest) modelRequest {
	t := s.processes[r.by].tenure
	switch {
	case r.stage == reqOnWire:
		return r
	case r.stage == reqWorking, r.stage == reqApplied && t.stage == toFinish && t.epoch == r.epoch:
		r.sentAt = 0
		return r
	}
	return modelRequest{}
}

// numberBeats counts every executor's beats backwards from a fixed number: of
// a suspect's it matters whether the one that was noted is the last, and of
// an observer's whether it lies two back.
func (m *model) numberBeats(s *modelState) {
	const last = 2
	for p := range s.store.executors {
		row, q := &s.store.executors[p], &s.processes[p]
		number := func(noted *int8, far int8) { *noted = last - min(row.beat-*noted, far) }
		number(&q.beats, 2)
		if q.life == dead || q.course.at == holding && !m.returns[p] || q.course.at == answered {
			q.beats = last // it suspects nobody any more
		}
		if q.course.trail.suspected {
			number(&q.course.trail.ownBeat, 2)
		}
		for i := range s.processes {
			c := &s.processes[i].course
			if c.held.record.state != noRecord && c.held.record.executor == who(p) {
				number(&c.held.executor.beat, 1)
			}
			if c.trail.suspected && c.trail.executor == who(p) {
				number(&c.trail.beat, 1)
			}
		}
		row.beat = last
	}
}

// within lets no time lie further back than a rule looks.
func within(ticks tick, times ...*tick) {
	for _, t := range times {
		if *t != 0 {
			*t = max(*t, present-ticks)
		}
	}
}

// age moves every time into the past.
func (s *modelState) age() {
	older := func(times ...*tick) {
		for _, t := range times {
			if *t != 0 {
				*t--
			}
		}
	}
	for p := range s.store.executors {
		e, q := &s.store.executors[p], &s.processes[p]
		older(&e.heartbeatAt, &e.leaseSince, &e.fencedAt)
		older(&q.sent, &q.trulySent, &q.beatSent)
		older(&q.course.held.executor.fencedAt, &q.course.trail.notRunning, &q.course.trail.since)
		older(&q.tenure.endedAt, &q.tenure.begunAt)
	}
	for i := range s.service.requests {
		older(&s.service.requests[i].sentAt)
	}
}
