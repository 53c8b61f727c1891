package takeover

import (
	"context"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// A flight is one record being reserved, executed or waited for on this node,
// on behalf of everybody here who asked the same thing: a thousand duplicates
// make one flight, one long-poll, one read of the store.
type flight struct {
	id      records.ID
	request Request
	work    Work
	begun   time.Time

	mu        sync.Mutex
	riders    int  // who still waits for the answer, the first caller included
	pilotGone bool // the first caller went away
	watching  bool // may be abandoned: nothing of it is claimed or being claimed
	grounded  bool // abandoned or landed: nobody may board
	abandon   context.CancelCauseFunc

	known chan struct{} // closed when the store has first answered
	first records.Record
	owned bool // by the first caller, at once

	settled chan struct{} // closed when this flight has finalized the record
	mine    Answer        // then, for the first caller

	landed  chan struct{} // closed when landing is final
	landing landing
}

// landing is how a flight ended.
type landing struct {
	pilot  Answer // for the first caller
	others Answer // for everybody else
	again  bool   // the key is free: everybody else must ask anew
	err    error  // for all
}

// flightKey: callers who ask different things under one key do not fly
// together. All but one of them will be refused.
type flightKey struct {
	id          records.ID
	fingerprint records.Fingerprint
}

// flights are the flights under way.
type flights struct {
	mu    sync.Mutex
	all   map[flightKey]*flight
	count int
	empty chan struct{} // closed while there are none
	over  bool          // no new ones begin
}

func newFlights() *flights {
	f := &flights{all: map[flightKey]*flight{}, empty: make(chan struct{})}
	close(f.empty)
	return f
}

// board joins the flight for the request, or makes a new one; nil once no new
// ones begin.
func (fs *flights) board(id records.ID, req Request, work Work) (f *flight, pilot bool) {
	key := flightKey{id, req.Fingerprint}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.all[key]; f != nil && f.embark() {
		return f, false
	}
	if fs.over {
		return nil, false
	}
	f = fs.begin(id, req, work)
	fs.all[key] = f
	return f, true
}

// alone makes a flight that nobody else boards; nil once no new ones begin.
func (fs *flights) alone(id records.ID, req Request) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.over {
		return nil
	}
	return fs.begin(id, req, nil)
}

// begin makes a flight and counts it.
func (fs *flights) begin(id records.ID, req Request, work Work) *flight {
	if fs.count == 0 {
		fs.empty = make(chan struct{})
	}
	fs.count++
	return &flight{id: id, request: req, work: work, begun: time.Now(), riders: 1, known: make(chan struct{}), settled: make(chan struct{}), landed: make(chan struct{})}
}

// land ends a flight. It must be called once for every new flight.
func (fs *flights) land(f *flight, l landing) {
	f.landing = l
	key := flightKey{f.id, f.request.Fingerprint}
	f.ground()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[key] == f {
		delete(fs.all, key)
	}
	if fs.count--; fs.count == 0 {
		close(fs.empty)
	}
	close(f.landed)
}

// know says what a reserve found; the first one counts.
func (f *flight) know(r records.Record, owned bool) {
	select {
	case <-f.known:
	default:
		f.first, f.owned = r, owned
		close(f.known)
	}
}

// stands reports whether the first look has found the answer, so that nobody
// waits for it. It may be asked once that look is known.
func (f *flight) stands() bool {
	r := f.first
	return r.State == records.Finalized || r.State == records.Unknown && f.request.Terms.Reconciler == nil ||
		r.State != records.Released && r.Fingerprint != f.request.Fingerprint
}

// settle gives the first caller its answer, ahead of the landing; the first one
// counts.
func (f *flight) settle(a Answer) {
	select {
	case <-f.settled:
	default:
		f.mine = a
		close(f.settled)
	}
}

// end lets no new flight begin.
func (fs *flights) end() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.over = true
}

// wait returns nil once no flight is under way, or ctx's cause.
func (fs *flights) wait(ctx context.Context) error {
	for {
		fs.mu.Lock()
		empty, count := fs.empty, fs.count
		fs.mu.Unlock()
		if count == 0 {
			return nil
		}
		select {
		case <-empty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *flight) embark() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grounded {
		return false
	}
	f.riders++
	return true
}

// leave is said by a caller who waits no longer. The last to leave a flight
// that only watches ends it; nobody ends one that executes.
func (f *flight) leave(pilot bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.riders--
	f.pilotGone = f.pilotGone || pilot
	if f.riders == 0 && f.watching {
		f.grounded = true
		f.abandon(errNobodyWaits)
	}
}

// watch returns the context of a stretch in which the flight may be
// abandoned, or false if nobody waits. done ends the stretch.
func (f *flight) watch(ctx context.Context) (watching context.Context, done func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.riders == 0 {
		f.grounded = true
		return nil, nil, false
	}
	watching, f.abandon = context.WithCancelCause(ctx)
	f.watching = true
	return watching, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watching = false
		f.abandon(nil)
	}, true
}

// ground lets nobody board any more and returns how many others than the
// first caller wait.
func (f *flight) ground() (others int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grounded = true
	if f.pilotGone {
		return f.riders
	}
	return f.riders - 1
}

func (f *flight) waiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.riders > 0
}
