package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

// simulate gives a member a network without sockets, for a bubble. It says
// what the real one would about the same faults; package probe proves that for
// sockets, and the fleets over real ones here.
func simulate(f *fleet, m *member, at string) {
	if at == "" {
		at = "http://" + m.name + ":7000"
	}
	m.config.URL = at
	config := m.config.WithDefaults()
	s := &station{fleet: f, member: m, dial: config.DialTimeout, header: config.HeaderTimeout, down: make(chan struct{})}
	close(s.down)
	m.asker = counted{s, m}
	m.serve = func() { s.listen(true) }
	m.hangUp = func() { s.listen(false) }
	m.free = func() {}
	m.calls.station.Store(s)
}

// station is a node on the simulated network.
type station struct {
	fleet        *fleet
	member       *member
	dial, header time.Duration

	mu   sync.Mutex
	up   bool
	down chan struct{} // closed while nobody listens here
}

func (s *station) listen(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case up && !s.up:
		s.down = make(chan struct{})
	case !up && s.up:
		close(s.down)
	}
	s.up = up
}

func (s *station) listening() (up bool, down <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up, s.down
}

// wire is a line of the simulated network.
type wire struct {
	mu    sync.Mutex
	fault fault
	moved chan struct{} // closed, and replaced, when the fault changes
}

func newWire() *wire { return &wire{moved: make(chan struct{})} }

func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
	close(w.moved)
	w.moved = make(chan struct{})
}

func (w *wire) state() (f fault, moved <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault, w.moved
}

// wired is the wire on which from asks to.
func (f *fleet) wired(from, to *member) *wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := [2]string{from.name, to.name}
	if w, ok := f.lines[key].(*wire); ok {
		return w
	}
	w := newWire()
	f.lines[key] = w
	return w
}

// at finds who listens at a URL, and the wire that leads there.
func (s *station) at(url string) (*station, *wire) {
	s.fleet.mu.Lock()
	boots := s.fleet.boots
	s.fleet.mu.Unlock()
	for _, m := range boots {
		other := m.calls.station.Load()
		if up, _ := other.listening(); up && m.config.URL == url {
			return other, s.fleet.wired(s.member, m)
		}
	}
	return nil, nil
}

var errSimulated = errors.New("simulated network")

// failing is an observation of a fault.
func failing(ctx context.Context, e records.Executor, v probe.Verdict, why string) probe.Observation {
	o := probe.Observation{Asked: e.ID, Verdict: v, Err: fmt.Errorf("%w: %s", errSimulated, why)}
	if ctx.Err() != nil {
		o.Verdict, o.Err, o.Cancelled = probe.Unknown, context.Cause(ctx), true
	}
	return o
}

// after waits like a question without an answer.
func after(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reach connects to an executor, or observes why not.
func (s *station) reach(ctx context.Context, e records.Executor, header time.Duration) (*station, *wire, probe.Observation) {
	to, w := s.at(e.URL)
	if to == nil {
		return nil, nil, failing(ctx, e, probe.Down, "refused")
	}
	f, _ := w.state()
	switch f {
	case cut:
		return nil, nil, failing(ctx, e, probe.Down, "reset")
	case blackhole:
		after(ctx, s.dial)
		return nil, nil, failing(ctx, e, probe.Silent, "dial timeout")
	case deaf, mute:
		after(ctx, header)
		return nil, nil, failing(ctx, e, probe.Silent, "header timeout")
	case healthy:
	}
	if ctx.Err() != nil {
		return nil, nil, failing(ctx, e, probe.Unknown, "")
	}
	return to, w, probe.Observation{}
}

// answer is what the node at to says when it is asked as e.
func (s *station) answer(e records.Executor, id records.ID, to *station) probe.Observation {
	me := to.member.Identity()
	o := probe.Observation{Asked: e.ID}
	if me.Executor == e.ID {
		o.Signer, o.Verdict = e.ID, probe.NotRunning
		if _, running := to.member.Entry(id); running {
			o.Verdict = probe.Running
		}
		return o
	}
	o.Err = fmt.Errorf("%w: executor %s signed it", errSimulated, me.Executor)
	signer, known := s.member.Lookup(me.Executor)
	switch {
	case !known:
		o.Claimed = me.Executor
	case signer.Slot == e.Slot && signer.HeartbeatAt.After(e.HeartbeatAt):
		o.Signer, o.Verdict = me.Executor, probe.Replaced
	default:
		o.Signer, o.Verdict = me.Executor, probe.Stranger
	}
	return o
}

// Probe implements takeover.Asker.
func (s *station) Probe(ctx context.Context, e records.Executor, id records.ID, _ int64) probe.Observation {
	to, _, o := s.reach(ctx, e, s.header)
	if to == nil {
		return o
	}
	return s.answer(e, id, to)
}

// Witness implements takeover.Asker.
func (s *station) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) probe.Testimony {
	to, _, o := s.reach(ctx, w, 2*s.header+s.dial)
	if to == nil {
		return probe.Testimony{Heard: o}
	}
	heard := s.answer(w, records.ID{}, to)
	if !heard.Verdict.Signed() {
		return probe.Testimony{Heard: heard}
	}
	if suspect == w.ID {
		return probe.Testimony{Heard: heard, Saw: probe.NotRunning, SuspectAlive: true}
	}
	e, known := to.member.Lookup(suspect)
	if !known {
		return probe.Testimony{Heard: heard}
	}
	saw := to.Probe(ctx, e, records.ID{}, 0)
	if saw.Cancelled {
		return probe.Testimony{Heard: failing(ctx, w, probe.Unknown, "")}
	}
	return probe.Testimony{Heard: heard, Saw: saw.Verdict, SuspectAlive: saw.Alive()}
}

// pings find a silent connection after so long.
const pings = 2 * time.Second

// Watch implements takeover.Asker.
func (s *station) Watch(ctx context.Context, e records.Executor, id records.ID, _ int64, wait time.Duration) probe.Observation {
	to, w, o := s.reach(ctx, e, s.header)
	if to == nil {
		return o
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	_, down := to.listening()
	for {
		o := s.answer(e, id, to)
		done, running := to.member.Entry(id)
		f, moved := w.state()
		var silent <-chan time.Time
		switch {
		case f == cut:
			return broken(ctx, e, "reset")
		case f != healthy:
			silent, done = time.After(pings), nil
		case o.Verdict != probe.Running || !running:
			return o
		}
		select {
		case <-done:
		case <-moved:
		case <-timer.C:
			if f == healthy {
				return s.answer(e, id, to)
			}
		case <-ctx.Done():
			return failing(ctx, e, probe.Unknown, "")
		case <-silent:
			return broken(ctx, e, "pings unanswered")
		case <-down:
			return broken(ctx, e, "connection closed")
		}
	}
}

func broken(ctx context.Context, e records.Executor, why string) probe.Observation {
	o := failing(ctx, e, probe.Unknown, why)
	o.Broken = !o.Cancelled
	return o
}
