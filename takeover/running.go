package takeover

import (
	"context"
	"sync"

	"github.com/probate-dev/probate/records"
)

// runningSet is what this process runs, or may be running: a record is in it
// from before its reserve or take-over is sent until the work has returned and
// its last write is settled. Probes are answered from it, and from nothing
// else.
//
// An entry is counted: a flight that reserves a key which another flight of
// this process is executing must not, by leaving, make it look idle.
type runningSet struct {
	mu      sync.Mutex
	entries map[records.ID]*entry
	empty   chan struct{} // closed while there are no entries
}

type entry struct {
	holders int
	done    chan struct{} // closed when the last holder leaves
}

func newRunningSet() *runningSet {
	r := &runningSet{entries: map[records.ID]*entry{}, empty: make(chan struct{})}
	close(r.empty)
	return r
}

// enter adds a holder of the record. The caller must call leave once.
func (r *runningSet) enter(id records.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		if len(r.entries) == 0 {
			r.empty = make(chan struct{})
		}
		e = &entry{done: make(chan struct{})}
		r.entries[id] = e
	}
	e.holders++
}

func (r *runningSet) leave(id records.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e.holders--; e.holders > 0 {
		return
	}
	close(e.done)
	delete(r.entries, id)
	if len(r.entries) == 0 {
		close(r.empty)
	}
}

// Entry reports whether the record is in the set, and if so a channel that is
// closed when it leaves. It is what the probe handler asks.
func (r *runningSet) Entry(id records.ID) (done <-chan struct{}, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return nil, false
	}
	return e.done, true
}

func (r *runningSet) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

// wait returns nil once the set is empty, or ctx's cause.
func (r *runningSet) wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		empty := r.empty
		r.mu.Unlock()
		select {
		case <-empty:
			if r.size() == 0 {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
