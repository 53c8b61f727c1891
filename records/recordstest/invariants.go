package recordstest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

// invariantRules exercise the protocol's invariants where only concurrency
// could break them.
var invariantRules = group{name: "Invariant", alone: true, rules: []rule{
	{"I1_I2_OneExecutorAndOneEndAnEpoch", func(f *fixture) { f.turmoil(16, 40) }},
	{"I3_NoBeatAfterAFence", func(f *fixture) {
		for range 5 {
			f.beatsAgainstFence()
		}
	}},
	{"I4_NoFenceWhenABeatLandedSince", func(f *fixture) {
		for range 5 {
			f.beatsAgainstSuspicion()
		}
	}},
	{"I4_NoFenceWithinALease", func(f *fixture) {
		for range 3 {
			f.lateBeatsAgainstFence()
		}
	}},
	{"I4_NoFenceByAFencedObserver", func(f *fixture) {
		f.fleet(24) // so that the brake has no say
		nodes := f.nodes(2)
		for range 8 {
			pair := f.fleet(2)
			f.oneWins(2, records.ErrObserverUnfit, func(i int) error {
				return errOf(nodes[i].Fence(f.Context(), probed(pair[1-i], pair[i])))
			})
		}
	}},
	{"I5_NothingChangesHandsBeforeTheFence", func(f *fixture) { f.takersAgainstFence(20) }},
	{"I9_NoRecordInProgressWithoutItsExecutor", func(f *fixture) {
		for range 5 {
			f.claimsAgainstExecutorPurge()
		}
	}},
	{"I11_PurgeTakesNoClaim", func(f *fixture) { f.reservesAgainstPurge(40) }},
	{"I12_AHealthyFleetFencesNobody", func(f *fixture) { f.falseAlarms(4, 5) }},
	{"I12_AnOutageMakesNobodyAnObserver", func(f *fixture) {
		// All went silent together. The first ones back see the others stale.
		ttl := 30 * time.Millisecond
		late := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: ttl})
		var first []records.Executor
		for range 4 {
			first = append(first, f.active(records.Registration{LeaseTTL: ttl}))
		}
		f.elapse(ttl)
		for _, e := range first {
			f.sparesFor(stale(late, f.beat(e.ID)), records.ErrObserverUnfit)
		}
	}},
}}

// beatsAgainstFence fences an executor that beats as fast as it can.
func (f *fixture) beatsAgainstFence() {
	f.Helper()
	nodes, victim := f.nodes(2), f.active(records.Registration{})
	var landed atomic.Int64
	var fenced atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				late := fenced.Load()
				_, err := nodes[i%2].Heartbeat(f.Context(), victim.ID)
				if err != nil {
					if !errors.Is(err, records.ErrNotActive) {
						f.Errorf("heartbeat: %v", err)
					}
					return
				}
				landed.Add(1)
				if late {
					f.Error("a beat that began after the fence landed")
					return
				}
			}
		})
	}
	f.await("it beats", func() bool { return landed.Load() > 4 || f.Failed() })
	atFence, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: victim.ID, Actor: "test", Reason: "test", Force: true})
	fenced.Store(true)
	wg.Wait()
	f.check(err)
	f.equal("beats", victim.Beat+landed.Load(), atFence.Beat)
	f.equal("row", ageless(f.executor(victim.ID)), ageless(atFence))
}

// beatsAgainstSuspicion lets two observers fence, on what they saw just now,
// an executor that beats on. If a fence lands, it lands at the beat that its
// observer saw.
func (f *fixture) beatsAgainstSuspicion() {
	f.Helper()
	nodes := f.nodes(3)
	// The lease is short for the brake, which looks back as far as that.
	victim := f.active(records.Registration{LeaseTTL: time.Millisecond})
	observers := f.fleet(2)
	var wg sync.WaitGroup
	var landed atomic.Int64
	var over atomic.Bool
	wg.Go(func() {
		defer over.Store(true)
		for range 20 {
			if _, err := nodes[2].Heartbeat(f.Context(), victim.ID); err != nil {
				return // fenced, which is the other half of the race
			}
			landed.Add(1)
		}
	})
	for i, observer := range observers {
		wg.Go(func() {
			for !over.Load() {
				seen, err := nodes[i].LoadExecutor(f.Context(), victim.ID)
				if err != nil || seen.State.Terminal() {
					return
				}
				got, err := nodes[i].Fence(f.Context(), probed(seen, observer))
				if err == nil && got.FencedBy == observer.ID && got.Beat != seen.Beat {
					f.Errorf("fenced at beat %d on a suspicion of beat %d", got.Beat, seen.Beat)
				}
			}
		})
	}
	wg.Wait()
	f.equal("beats", f.executor(victim.ID).Beat, victim.Beat+landed.Load())
}

// lateBeatsAgainstFence lets an executor under policy lease beat now in time,
// now too late, while an observer tries to fence it without a pause.
func (f *fixture) lateBeatsAgainstFence() {
	f.Helper()
	nodes, observer := f.nodes(2), f.active(records.Registration{})
	ttl := 20 * time.Millisecond
	victim := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: ttl})
	var wg sync.WaitGroup
	wg.Go(func() {
		for !f.Failed() {
			if _, err := nodes[0].Heartbeat(f.Context(), victim.ID); err != nil {
				return
			}
			<-time.After(rand.N(2 * ttl))
		}
	})
	var fenced records.Executor
	f.await("a lease expires", func() bool {
		seen := f.executor(victim.ID)
		got, err := nodes[1].Fence(f.Context(), probed(seen, observer))
		if err != nil && !isAny(err, records.ErrLeaseHeld, records.ErrRefuted, records.ErrBraked) {
			f.Error(err)
		}
		fenced = got
		return err == nil || f.Failed()
	})
	wg.Wait()
	if age := fenced.FencedAt.Sub(fenced.HeartbeatAt); age < ttl {
		f.Errorf("fenced %s after a beat, within its lease of %s", age, ttl)
	}
}

// takersAgainstFence lets many try to take records over from an executor that
// lives until it is fenced.
func (f *fixture) takersAgainstFence(n int) {
	f.Helper()
	nodes, a := f.nodes(2), f.active(records.Registration{})
	held := f.claims(a.ID, n)
	var fencing atomic.Bool
	var tries atomic.Int32
	takers := f.fleet(4)
	taken := make([]atomic.Int32, n)
	var wg sync.WaitGroup
	for i, b := range takers {
		wg.Go(func() {
			for j := 0; !f.Failed(); j++ {
				r := held[j%n]
				begun := fencing.Load()
				_, err := nodes[i%2].TakeOver(f.Context(), takeOver(r, b.ID))
				tries.Add(1)
				switch {
				case err == nil && !fencing.Load():
					f.Error("taken over from an executor that nobody had fenced")
					return
				case err == nil:
					taken[j%n].Add(1)
				case !errors.Is(err, records.ErrFenced):
					f.Errorf("take over: %v", err)
					return
				}
				if begun && allTaken(taken) {
					return
				}
			}
		})
	}
	f.await("takers try", func() bool { return tries.Load() > int32(2*len(takers)) || f.Failed() })
	fencing.Store(true)
	f.fence(a.ID)
	wg.Wait()
	for i, r := range held {
		f.equal("take-overs", int(taken[i].Load()), 1)
		f.equal("epoch", f.load(r.ID).Record.Epoch, r.Epoch+1)
	}
}

func allTaken(taken []atomic.Int32) bool {
	for i := range taken {
		if taken[i].Load() == 0 {
			return false
		}
	}
	return true
}

// claimsAgainstExecutorPurge lets an executor claim, look and release while it
// is drained, retired and its row purged. As long as it holds something its
// row is there.
func (f *fixture) claimsAgainstExecutorPurge() {
	f.Helper()
	nodes, e := f.nodes(2), f.active(records.Registration{})
	var claimed atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 { // a bound, should the purge be slow
				err := claimLookRelease(f, nodes[i%2], e.ID)
				if errors.Is(err, records.ErrNotActive) {
					return
				}
				if err != nil {
					f.Error(err)
					return
				}
				claimed.Add(1)
			}
		})
	}
	f.await("claims are under way", func() bool { return claimed.Load() > 4 || f.Failed() })
	f.check(f.store.Drain(f.Context(), e.ID))
	f.check(f.store.Retire(f.Context(), e.ID))
	f.await("its row is purged", func() bool {
		f.check(errOf(f.store.PurgeExecutors(f.Context(), 0)))
		return isAny(errOf(f.store.LoadExecutor(f.Context(), e.ID)), records.ErrNotFound) || f.Failed()
	})
	wg.Wait()
}

func claimLookRelease(f *fixture, s records.Store, by records.ExecutorID) error {
	got, err := s.Reserve(f.Context(), reservation(by))
	if err != nil {
		return err
	}
	held, err := s.Load(f.Context(), got.Record.ID)
	if err == nil && held.Executor.ID != by {
		err = errors.New("a record is in progress by an executor that is not there")
	}
	return errors.Join(err, s.Release(f.Context(), got.Record.ID, got.Record.Fence()))
}

// reservesAgainstPurge purges n keys while they are claimed anew.
func (f *fixture) reservesAgainstPurge(n int) {
	f.Helper()
	nodes, a := f.nodes(2), f.active(records.Registration{})
	wanted := make([]records.Reservation, n)
	for i := range wanted {
		wanted[i] = reservation(a.ID)
		f.finalize(f.reserve(wanted[i]), outcome("old", 0))
	}
	f.elapse(Grace)
	claimed := make([]records.Record, n)
	for _, err := range atOnce(n+8, func(i int) error {
		if i >= n {
			return errOf(nodes[i%2].Purge(f.Context(), 5))
		}
		got, err := nodes[i%2].Reserve(f.Context(), again(wanted[i], a.ID))
		if err == nil && !got.Owned {
			return errNotOwned
		}
		claimed[i] = got.Record
		return err
	}) {
		f.check(err)
	}
	for _, r := range claimed {
		f.unchanged(r)
	}
}

// falseAlarms lets every executor of a healthy fleet suspect each other one
// after a probe that failed, though the suspect beats on.
func (f *fixture) falseAlarms(size, alarms int) {
	f.Helper()
	fleet, nodes := f.fleet(size), f.nodes(2)
	var wg, beats sync.WaitGroup
	done := make(chan struct{})
	for i, e := range fleet {
		beats.Go(func() {
			for {
				if _, err := nodes[i%2].Heartbeat(f.Context(), e.ID); err != nil {
					f.Errorf("heartbeat: %v", err)
					return
				}
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		wg.Go(func() {
			for n := range alarms {
				suspect := fleet[(i+1+n%(size-1))%size]
				if err := falseAlarm(f, nodes[i%2], suspect.ID, e.ID); !errors.Is(err, records.ErrRefuted) {
					f.Errorf("false alarm: %v, want ErrRefuted", err)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	beats.Wait()
	fenced, err := f.store.ListExecutors(f.Context(), records.Fenced)
	f.check(err)
	f.equal("fenced", len(fenced), 0)
}

// falseAlarm notes a suspect's beat, waits for its next, and still asks for
// the fence.
func falseAlarm(f *fixture, s records.Store, suspect, observer records.ExecutorID) error {
	seen, err := s.LoadExecutor(f.Context(), suspect)
	if err != nil {
		return err
	}
	for now := seen; now.Beat == seen.Beat; {
		if f.Failed() {
			return errors.New("gave up after another failure")
		}
		if now, err = s.LoadExecutor(f.Context(), suspect); err != nil {
			return err
		}
	}
	o, err := s.LoadExecutor(f.Context(), observer)
	if err != nil {
		return err
	}
	return errOf(s.Fence(f.Context(), probed(seen, o)))
}
