package transfer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

// run is one copy of this process: from when its record was claimed until its
// work returns.
type run struct {
	flow   string
	fence  records.Fence
	cancel context.CancelCauseFunc

	begun atomic.Bool  // the flow's row says so
	bytes atomic.Int64 // at the sink
	total atomic.Int64 // 0: not known

	// The ledger's, behind its lock.
	checkpoint []byte    // the last that was saved
	noted      time.Time // when progress was last written, or tried to be
	waiting    []chan struct{}
}

// wanted is the cause of a copy's end that somebody ordered.
type wanted struct{ state records.FlowState }

func (w *wanted) Error() string { return "wanted: " + string(w.state) }

// ledger writes the progress of all copies of this process, together: what is
// to be written while a statement runs goes into the next. What comes back is
// what is wanted of each flow, so an order that did not reach this node is
// heeded all the same.
type ledger struct {
	store Store
	every time.Duration
	log   *slog.Logger
	due   chan struct{} // capacity 1

	mu   sync.Mutex
	runs map[*run]struct{}
}

// notesAtOnce bounds one statement.
const notesAtOnce = 500

func newLedger(store Store, every time.Duration, log *slog.Logger) *ledger {
	return &ledger{store: store, every: every, log: log, due: make(chan struct{}, 1), runs: map[*run]struct{}{}}
}

func (l *ledger) open(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.noted = time.Now()
	l.runs[r] = struct{}{}
}

func (l *ledger) close(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, r)
	for _, w := range r.waiting {
		close(w)
	}
	r.waiting = nil
}

// save has a checkpoint written, and waits until it was, or at least was tried:
// one that is lost costs a successor some bytes, and nothing else.
func (l *ledger) save(ctx context.Context, r *run, checkpoint []byte) {
	written := make(chan struct{})
	l.mu.Lock()
	if _, open := l.runs[r]; !open {
		l.mu.Unlock()
		return
	}
	r.checkpoint = checkpoint
	r.waiting = append(r.waiting, written)
	l.mu.Unlock()
	select {
	case l.due <- struct{}{}:
	default:
	}
	patience := time.NewTimer(l.every)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// keep writes until ctx ends: at once what is waited for, the rest when its
// time has come.
func (l *ledger) keep(ctx context.Context) {
	tick := time.NewTicker(max(l.every/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-l.due:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		l.flush(ctx)
	}
}

func (l *ledger) flush(ctx context.Context) {
	runs, notes, waiting := l.take()
	if len(runs) == 0 {
		return
	}
	noted, err := l.store.NoteProgress(ctx, notes)
	if err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "progress not written", "flows", len(runs), "error", err)
	}
	for i, n := range noted {
		switch {
		case err != nil:
		case n.Fenced:
			runs[i].cancel(records.ErrFenced)
		case n.Wanted != "":
			runs[i].cancel(&wanted{n.Wanted})
		}
	}
	for _, w := range waiting {
		close(w)
	}
}

// take collects what is to be written now.
func (l *ledger) take() (runs []*run, notes []records.FlowNote, waiting []chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for r := range l.runs {
		// A copy that comes on saves a checkpoint every so often, and what is
		// noted with it need not be noted besides.
		if len(r.waiting) == 0 && now.Sub(r.noted) < l.every+l.every/2 {
			continue
		}
		r.noted = now
		runs = append(runs, r)
		notes = append(notes, records.FlowNote{ID: r.flow, Fence: r.fence, Progress: records.Progress{
			Bytes: r.bytes.Load(), Total: r.total.Load(), Checkpoint: r.checkpoint,
		}})
		waiting = append(waiting, r.waiting...)
		r.waiting = nil
		if len(runs) == notesAtOnce {
			break
		}
	}
	return runs, notes, waiting
}
