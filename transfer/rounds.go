package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/transfer/move"
)

// panicked is a copy that a fault of our own, or of a library, ended. Where, is
// for the log, and not for those who are told why.
type panicked struct {
	reason string
	stack  []byte
}

func (e *panicked) Error() string { return e.reason }

// moveBytes copies, round after round: a round that came further gives hope
// for the next.
func (p *Plane) moveBytes(ctx context.Context, r *run, flow records.Flow) (move.Result, error) {
	p.ledger.open(r) // what is wanted of it is to be seen also while it waits
	defer p.ledger.close(r)
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return move.Result{}, context.Cause(ctx)
	}
	job, err := p.job(r, flow)
	if err != nil {
		return move.Result{}, err
	}
	pause := p.config.RoundPause
	for idle, furthest := 0, int64(0); ; {
		// It may have waited for its place, or since the last round.
		if err := takeover.BeforeEffect(ctx); err != nil {
			return move.Result{}, errors.Join(errMayNot, err)
		}
		result, err := copyGuarded(ctx, job)
		p.config.Events.Retried(result.Retries)
		if err == nil || ctx.Err() != nil {
			return result, err
		}
		if fault, ours := errors.AsType[*panicked](err); ours {
			p.log.ErrorContext(ctx, "copy panicked", "record", flow.Record, "epoch", r.fence.Epoch, "panic", fault.reason, "stack", string(fault.stack))
		} else if !move.Transient(err) {
			return result, err
		}
		if idle++; result.Bytes > furthest {
			idle, furthest, pause = 0, result.Bytes, p.config.RoundPause
		}
		if idle >= p.config.Rounds {
			return result, fmt.Errorf("gave up after %d tries that came no further: %w", idle, err)
		}
		p.log.WarnContext(ctx, "copy failed and is begun again", "record", flow.Record, "epoch", r.fence.Epoch, "bytes", result.Bytes, "error", err)
		if !sleep(ctx, pause) {
			return result, context.Cause(ctx)
		}
		p.config.Events.Retried(1)
		pause = min(2*pause, time.Minute)
		job.Resume = r.resume(job.Resume)
	}
}

// sleep reports whether it came to its end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// copyGuarded turns a panic into an error: one flow must not take the others
// down.
func copyGuarded(ctx context.Context, job move.Job) (result move.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{fmt.Sprintf("copy panicked: %v", v), debug.Stack()}
		}
	}()
	return move.Copy(ctx, job)
}

// resume is the last checkpoint that this run has saved, or else the one it
// began with.
func (r *run) resume(first *move.Checkpoint) *move.Checkpoint {
	if c := checkpointOf(r.checkpoint); c != nil {
		return c
	}
	return first
}

func checkpointOf(raw []byte) *move.Checkpoint {
	var c move.Checkpoint
	if len(raw) == 0 || json.Unmarshal(raw, &c) != nil {
		return nil
	}
	return &c
}

// offsetOf a checkpoint is from where a copy goes on.
func offsetOf(raw []byte) int64 {
	if c := checkpointOf(raw); c != nil {
		return c.Offset
	}
	return 0
}

// job is what is to be copied. An error is for good.
func (p *Plane) job(r *run, flow records.Flow) (move.Job, error) {
	t, err := taskOf(flow.Message)
	if err != nil {
		return move.Job{}, err
	}
	source, err := p.config.Ends.Source(t)
	if err != nil {
		return move.Job{}, err
	}
	sink, err := p.config.Ends.Sink(t)
	if err != nil {
		return move.Job{}, err
	}
	declared, err := declaredBytes(t)
	if err != nil {
		return move.Job{}, err
	}
	return move.Job{
		Identity: move.Identity{Flow: flow.ID, Epoch: r.fence.Epoch},
		Source:   noting{source, r}, Sink: sink, Length: declared.length, SHA256: declared.sha256,
		MaxBytes: p.config.MaxBytes, StallTimeout: p.config.StallTimeout,
		Resume: checkpointOf(flow.Progress.Checkpoint), SaveEvery: p.config.NoteEvery,
		Save: func(ctx context.Context, c move.Checkpoint) error {
			raw, err := json.Marshal(c)
			if err != nil {
				return err
			}
			p.ledger.save(ctx, r, raw)
			return context.Cause(ctx)
		},
		Progress:     p.progress(r, offsetOf(flow.Progress.Checkpoint)),
		BeforeCommit: func(ctx context.Context) error { return p.mayCommit(ctx, r) },
		Keep:         keeps,
	}, nil
}

// noting tells a run how long its source is.
type noting struct {
	move.Source
	run *run
}

// Open implements [move.Source].
func (n noting) Open(ctx context.Context, from int64, validator string) (*move.Body, error) {
	b, err := n.Source.Open(ctx, from, validator)
	if err == nil {
		n.run.total.Store(max(b.Length, 0))
	}
	return b, err
}

// mayCommit asks for the fence, just before bytes become visible: of the lease
// first, whose loss the store may not know of yet, then of the store.
func (p *Plane) mayCommit(ctx context.Context, r *run) error {
	if err := takeover.BeforeEffect(ctx); err != nil {
		return errors.Join(errMayNot, err)
	}
	_, err := persist(ctx, func() (struct{}, error) { return struct{}{}, p.store.HoldsFlow(ctx, r.flow, r.fence) })
	return err
}

// keeps decides what stays at a sink when a copy ends: all that somebody may go
// on with. After a fence it is the successor's, whoever that is.
func keeps(err error) bool {
	if w, ordered := errors.AsType[*wanted](err); ordered {
		return w.state == records.FlowSuspended
	}
	fault, ok := errors.AsType[*move.Fault](err)
	return !ok || fault.Transient
}
