package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Audit says what a node writes down of what it sees. What operators do is
// always written down.
type Audit struct {
	Level     string        `yaml:"level" help:"What is noted: unusual, all or off."`
	Retention time.Duration `yaml:"retention" help:"How long events are remembered."`
}

// Levels of an audit.
const (
	auditUnusual = "unusual" // what an operator would ask about
	auditAll     = "all"     // each execution's course, too
	auditOff     = "off"
)

const (
	auditQueue  = 2048                   // events that may wait; some 400 KiB
	auditLinger = 200 * time.Millisecond // in which more events join a batch
	auditWrite  = 5 * time.Second        // one attempt to write
	auditRetry  = time.Second            // after a failed one
	auditLast   = 3 * time.Second        // what is left at the end
)

// audit notes what happens on this node, in batches and behind its back: no
// caller waits for it, and a first execution costs no statement more. Events
// that come faster than the store takes them are lost, and counted. Everything
// is told to the metrics first.
type audit struct {
	*metrics
	level string
	store records.Audit
	log   *slog.Logger
	queue chan witnessed
	ended chan struct{}
}

// witnessed is an event and when this node saw it.
type witnessed struct {
	records.Occurrence
	at time.Time
}

func newAudit(level string, store records.Audit, m *metrics, log *slog.Logger) *audit {
	return &audit{
		metrics: m, level: level, store: store, log: log,
		queue: make(chan witnessed, auditQueue), ended: make(chan struct{}),
	}
}

// note queues an event, or counts it as lost.
func (a *audit) note(unusual bool, kind records.EventKind, r records.Record, reason, before, after string) {
	if a.level == auditOff || a.level == auditUnusual && !unusual {
		return
	}
	reason, _, _ = strings.Cut(reason, "\n") // what follows is a stack
	w := witnessed{records.Occurrence{
		Kind: kind, Record: r.ID, Epoch: r.Epoch, Executor: r.Executor,
		Reason: reason, Before: before, After: after,
	}, time.Now()}
	select {
	case a.queue <- w:
	default:
		a.dropped.Inc()
	}
}

const inProgress = string(records.InProgress)

// Claimed implements [takeover.Events], as all below.
func (a *audit) Claimed(r records.Record) {
	a.note(false, records.EventClaimed, r, "", "", inProgress)
}

// Waited is of the ordinary.
func (a *audit) Waited(r records.Record) { a.note(false, records.EventWaited, r, "", "", "") }

// Probed is out of the ordinary unless the executor runs the record.
func (a *audit) Probed(r records.Record, v probe.Verdict) {
	a.metrics.Probed(r, v)
	a.note(v != probe.Running, records.EventProbed, r, v.String(), "", "")
}

// Fenced is about an executor, not about a record.
func (a *audit) Fenced(executor records.ExecutorID, reason string) {
	a.metrics.Fenced(executor, reason)
	a.note(true, records.EventFenced, records.Record{Executor: executor}, reason, "", string(records.Fenced))
}

// TookOver names the new owner and its epoch.
func (a *audit) TookOver(r records.Record, reason string) {
	a.metrics.TookOver(r, reason)
	a.note(true, records.EventTakenOver, r, reason, "", inProgress)
}

// Reconciled says what was found, and why.
func (a *audit) Reconciled(r records.Record, f takeover.Finding) {
	a.metrics.Reconciled(r, f)
	reason := f.Kind.String()
	if f.Reason != "" {
		reason += ": " + f.Reason
	}
	a.note(true, records.EventReconciled, r, reason, "", "")
}

// Settled is out of the ordinary where nobody can tell what came of it, and
// where the record was taken over before. A release is not: whoever sends bad
// tokens would fill the audit.
func (a *audit) Settled(r records.Record, to records.State, took time.Duration, reason string) {
	a.metrics.Settled(r, to, took, reason)
	kind := records.EventFinalized
	switch to {
	case records.Unknown:
		kind = records.EventUnknown
	case records.Released:
		kind = records.EventReleased
	case records.Finalized, records.InProgress:
	}
	a.note(to == records.Unknown || r.Takeovers > 0, kind, r, reason, inProgress, string(to))
}

// end says that nothing more will happen.
func (a *audit) end() { close(a.ended) }

// run writes what is queued until end was called, and then what is left, for no
// longer than a moment.
func (a *audit) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a node that leaves still says why
	var last sync.WaitGroup
	defer last.Wait()
	defer cancel()
	last.Go(func() {
		select {
		case <-a.ended:
		case <-ctx.Done():
			return
		}
		moment := time.NewTimer(auditLast)
		defer moment.Stop()
		select {
		case <-moment.C:
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		select {
		case first := <-a.queue:
			a.write(ctx, a.gather(first))
		case <-a.ended:
			if len(a.queue) == 0 {
				return
			}
		}
	}
}

// gather lets more events join the first, for a moment.
func (a *audit) gather(first witnessed) []witnessed {
	batch := []witnessed{first}
	linger := time.NewTimer(auditLinger)
	defer linger.Stop()
	for len(batch) < records.MaxOccurrences {
		select {
		case w := <-a.queue:
			batch = append(batch, w)
			continue
		default:
		}
		select {
		case w := <-a.queue:
			batch = append(batch, w)
		case <-linger.C:
			return batch
		case <-a.ended:
			return batch
		}
	}
	return batch
}

// write writes a batch, however long the store is away; what comes meanwhile
// waits, or is lost. What could not be written when ctx ends is lost.
func (a *audit) write(ctx context.Context, batch []witnessed) {
	for {
		err := a.attempt(ctx, batch)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil, !errors.Is(err, records.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			a.log.ErrorContext(ctx, "audit: events are lost", "events", len(batch), "error", err)
			a.dropped.Add(float64(len(batch)))
			return
		}
		a.log.WarnContext(ctx, "audit: store unavailable", "events", len(batch), "error", err)
		retry := time.NewTimer(auditRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
		}
	}
}

// attempt writes a batch once. An event that is noted late has still happened
// when it did.
func (a *audit) attempt(ctx context.Context, batch []witnessed) error {
	ctx, cancel := context.WithTimeout(ctx, auditWrite)
	defer cancel()
	all := make([]records.Occurrence, len(batch))
	for i, w := range batch {
		all[i] = w.Occurrence
		all[i].Ago = max(0, time.Since(w.at))
	}
	return a.store.Note(ctx, all)
}
