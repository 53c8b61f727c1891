package takeover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/probate-dev/probate/records"
)

// Run registers this node, keeps it alive and returns when it has left the
// fleet. The probe endpoint at Config.URL must answer, through
// [Node.Identity] and [Node.Entry], before Run is called and until it has
// returned.
//
// [Node.Drain] lets it leave when its work is done, with a nil error. When ctx
// ends it leaves at once: what it runs is cancelled, awaited, and marked
// unknown where nobody can tell. What cannot be settled in time, because the
// store is away or work ignores its context, is an error. After a fence it waits for its old work to
// return and registers anew, as another executor; unless the fence came from a
// newer boot of its own slot, which is [ErrReplaced].
func (n *Node) Run(ctx context.Context) error {
	for {
		again, err := n.live(ctx)
		if !again {
			n.become(records.Gone)
			n.stop(ErrStopped)
			n.aborted(ErrStopped)
			n.flights.end()
			_ = n.flights.wait(context.WithoutCancel(ctx)) // one that has boarded may have no goroutine yet
			n.wg.Wait()
			return err
		}
		n.log.WarnContext(ctx, "fenced; registering anew")
	}
}

// live is the life of one boot, from its registration to its end.
func (n *Node) live(ctx context.Context) (again bool, err error) {
	b := n.boot()
	defer b.lease.end(ErrStopped)
	if err := n.enlist(ctx, b); err != nil {
		if n.leaving.Err() != nil {
			return false, nil // it was told to leave before it had come
		}
		return false, fmt.Errorf("register executor: %w", err)
	}
	beats := n.start(ctx, func(ctx context.Context) { n.beat(ctx, b) })
	defer beats()
	lists := n.start(ctx, func(ctx context.Context) { n.followFleet(ctx, b) })
	defer lists()
	chores := n.start(ctx, func(ctx context.Context) { n.keepHouse(ctx, b) })
	defer chores()

	select {
	case <-b.fenced:
		n.become(records.Fenced)
		chores()
		return n.afterFence(ctx, b)
	case <-n.leaving.Done():
	case <-ctx.Done():
	}
	chores() // a sweep claims records
	return n.leave(ctx, b)
}

// start runs f in a goroutine and returns what ends and awaits it. The end of
// ctx does not end it: a node that leaves goes on beating.
func (n *Node) start(ctx context.Context, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel(ErrStopped)
		<-done
	}
}

// enlist dials this node through its own URL, then registers. It gives up when
// the node is told to leave.
func (n *Node) enlist(ctx context.Context, b *boot) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.leaving, func() { cancel(context.Cause(n.leaving)) })() //nolint:contextcheck // a second end, besides ctx's
	n.learnPeers(ctx)
	seen := n.asker.Probe(ctx, n.self(b), records.ID{}, 0)
	somebody := seen.Signer != records.ExecutorID{} || seen.Claimed != records.ExecutorID{}
	if somebody && !seen.Verdict.Signed() {
		return fmt.Errorf("%s: %w", n.config.URL, ErrURLTaken)
	}
	r := records.Registration{
		ID: b.id, Slot: n.config.Slot, URL: n.config.URL, PublicKey: b.publicKey(),
		Policy: n.config.Policy, LeaseTTL: n.config.LeaseTTL,
	}
	pace := n.pace()
	sent := time.Now() // of the first registration that may have landed: a repeat returns that row
	for {
		row, err := n.store.Register(ctx, r)
		taken, isTaken := errors.AsType[*records.SlotTakenError](err)
		switch {
		case err == nil:
			b.beats.Store(row.Beat)
			b.lease.renew(sent)
			n.selfDialled.Store(seen.Verdict.Signed())
			n.log.InfoContext(ctx, "registered", "executor", b.id, "slot", n.config.Slot, "url", n.config.URL)
			return nil
		case isTaken:
			if r.Replaces, err = n.knock(ctx, taken.Holder, seen.Verdict.Signed()); err != nil {
				return err
			}
			sent = time.Now()
		case !errors.Is(err, records.ErrUnavailable):
			return err
		default:
			n.log.WarnContext(ctx, "register: store unavailable", "error", err)
		}
		if err := sleep(ctx, pace.NextBackOff()); err != nil {
			return err
		}
	}
}

// self is this node as a peer would address it.
func (n *Node) self(b *boot) records.Executor {
	return records.Executor{ID: b.id, Slot: n.config.Slot, URL: n.config.URL, PublicKey: b.publicKey()}
}

// knock probes the boot that holds this node's slot. A signed answer is
// [ErrSlotInUse]. Where the holder's URL is this node's own, and this node has
// just answered there itself, nobody else does.
func (n *Node) knock(ctx context.Context, holder records.Executor, answersHere bool) (records.Sighting, error) {
	sighting := records.Sighting{Executor: holder.ID, Beat: holder.Beat}
	if holder.URL == n.config.URL && answersHere {
		return sighting, nil
	}
	first := n.asker.Probe(ctx, holder, records.ID{}, 0)
	if first.Alive() || holder.Policy == records.PolicyProbe && !n.confirmAlone(ctx, holder, first) {
		if ctx.Err() != nil {
			return records.Sighting{}, context.Cause(ctx)
		}
		return records.Sighting{}, fmt.Errorf("%s at %s: %w", holder.ID, holder.URL, ErrSlotInUse)
	}
	return sighting, nil
}

// beat sends heartbeats until ctx ends or the store says that b is terminal.
func (n *Node) beat(ctx context.Context, b *boot) {
	for {
		interval := time.Duration(float64(n.config.Heartbeat) * (0.8 + 0.4*rand.Float64()))
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-b.kicked:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		b.lease.check()
		if !n.beatOnce(ctx, b) {
			return
		}
	}
}

// beatOnce reports whether another heartbeat makes sense. Whatever the error,
// the lease ends by itself if none lands.
func (n *Node) beatOnce(ctx context.Context, b *boot) bool {
	limit, cancel := context.WithTimeout(ctx, n.config.StatementTimeout)
	defer cancel()
	sent := time.Now()
	row, err := n.store.Heartbeat(limit, b.id)
	switch {
	case errors.Is(err, records.ErrNotActive):
		n.log.ErrorContext(ctx, "heartbeat: this executor was declared dead", "executor", b.id)
		b.declaredDead()
		return false
	case err != nil:
		if ctx.Err() == nil {
			n.log.WarnContext(ctx, "heartbeat failed", "executor", b.id, "error", err)
		}
		return true
	}
	b.beats.Store(row.Beat)
	b.lease.renew(sent)
	n.memory.heard(row.Erasures)
	signal(b.landed)
	return true
}

// afterFence waits until nothing of the fenced boot runs any more, then makes
// the next boot ready. Results that finish meanwhile are still offered to the
// store; the fence decides.
func (n *Node) afterFence(ctx context.Context, b *boot) (again bool, err error) {
	limit, cancel := context.WithTimeoutCause(ctx, n.config.DrainTimeout, errors.New("old work still runs"))
	defer cancel()
	if err := n.running.wait(limit); err != nil {
		return false, fmt.Errorf("%w: %w", ErrExecutorFenced, err)
	}
	row, err := n.ownRow(limit, b)
	if err != nil {
		return false, fmt.Errorf("%w: read why: %w", ErrExecutorFenced, err)
	}
	n.log.WarnContext(ctx, "fenced", "executor", b.id, "by", row.FencedBy, "reason", row.FencedReason)
	if by, err := n.store.LoadExecutor(limit, row.FencedBy); err == nil && by.Slot == n.config.Slot {
		return false, ErrReplaced
	}
	n.become(starting)
	n.current.Store(newBoot(n.config.trust()))
	return true, nil
}

// ownRow reads the executor's row, as often as it takes.
func (n *Node) ownRow(ctx context.Context, b *boot) (records.Executor, error) {
	return backoff.RetryWithData(func() (records.Executor, error) {
		row, err := n.store.LoadExecutor(ctx, b.id)
		if err != nil && !errors.Is(err, records.ErrUnavailable) {
			return row, backoff.Permanent(err)
		}
		return row, err
	}, backoff.WithContext(n.pace(), ctx))
}

// leave drains: readiness fails first, nothing new is claimed, heartbeats and
// probes go on until the last record is done; then the executor is gone. When
// ctx ends or the drain takes too long, what still runs is cancelled first.
func (n *Node) leave(ctx context.Context, b *boot) (again bool, err error) {
	n.become(records.Draining)
	b.draining.Store(true)
	n.log.InfoContext(ctx, "draining", "executor", b.id, "in_progress", n.running.size())
	told := n.start(ctx, func(told context.Context) { n.tell(told, "drain", b, n.store.Drain) })
	defer told()

	limit, cancel := context.WithTimeout(ctx, n.config.DrainTimeout)
	defer cancel()
	if n.running.wait(limit) != nil || n.flights.wait(limit) != nil {
		b.lease.end(ErrStopped)
	}
	n.stop(ErrStopped) // waiting duplicates are told to ask elsewhere
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), n.config.DrainTimeout)
	defer cancelLast()
	if err := n.running.wait(last); err != nil {
		return false, fmt.Errorf("drain: work does not end: %w", err)
	}
	told()
	retire, cancelRetire := context.WithTimeout(context.WithoutCancel(ctx), 5*n.config.StatementTimeout)
	defer cancelRetire()
	n.tell(retire, "drain", b, n.store.Drain)
	n.tell(retire, "retire", b, n.store.Retire)
	n.log.InfoContext(ctx, "gone", "executor", b.id)
	return false, nil
}

// tell writes this executor's state until the store took it, refused it or
// ctx ended. An executor that cannot leave is fenced by others in the end.
func (n *Node) tell(ctx context.Context, what string, b *boot, write func(context.Context, records.ExecutorID) error) {
	err := backoff.Retry(func() error {
		err := write(ctx, b.id)
		if err != nil && !errors.Is(err, records.ErrUnavailable) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(n.pace(), ctx))
	if err != nil {
		n.complain(ctx, what, err)
	}
}
