package recordstest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

// probed is a case from a failed probe: the suspect refused the connection.
func probed(suspect, observer records.Executor) records.Suspicion {
	return records.Suspicion{
		Suspect: suspect.ID, Beat: suspect.Beat, Probed: true,
		Observer: observer.ID, ObserverBeat: observer.Beat, Reason: "connection refused",
	}
}

// stale is a case from a heartbeat that stopped.
func stale(suspect, observer records.Executor) records.Suspicion {
	s := probed(suspect, observer)
	s.Probed, s.Reason = false, "heartbeat stale"
	return s
}

// fences demands that the suspicion is enough.
func (f *fixture) fences(s records.Suspicion) {
	f.Helper()
	got, err := f.store.Fence(f.Context(), s)
	f.check(err)
	f.equal("state", got.State, records.Fenced)
	f.equal("fenced by", got.FencedBy, s.Observer)
	f.equal("reason", got.FencedReason, s.Reason)
	if got.FencedAt.Before(got.HeartbeatAt) {
		f.Errorf("fenced at %s, before its last heartbeat at %s", got.FencedAt, got.HeartbeatAt)
	}
	f.equal("row read back", ageless(f.executor(s.Suspect)), ageless(got))
}

// sparesFor demands that the suspicion is refused and changes nothing.
func (f *fixture) sparesFor(s records.Suspicion, want error) {
	f.Helper()
	before := f.executor(s.Suspect)
	_, err := f.store.Fence(f.Context(), s)
	f.refused(err, want)
	f.equal("suspect", ageless(f.executor(s.Suspect)), ageless(before))
}

// steady lets an executor beat, as often as its lease demands, until its
// unbroken run is longer than the lease, and hands it to use right after the
// beat. If the machine was so slow that the beat had aged past half a lease
// when use got there, the store says so, and the run begins again.
func (f *fixture) steady(id records.ExecutorID, use func(records.Executor) error) {
	f.Helper()
	f.await("an unbroken run of beats, longer than the lease", func() bool {
		e := f.beat(id)
		if e.HeartbeatAt.Sub(e.LeaseSince) <= e.LeaseTTL {
			return false
		}
		err := use(e)
		if errors.Is(err, records.ErrObserverUnfit) {
			return false
		}
		f.check(err)
		return true
	})
}

var fenceRules = group{name: "Fence", alone: true, rules: []rule{
	{"AConfirmedFailedProbeIsEnoughUnderPolicyProbe", func(f *fixture) {
		f.fences(probed(f.active(records.Registration{}), f.active(records.Registration{})))
	}},
	{"ADrainingSuspectIsFencedToo", func(f *fixture) {
		suspect := f.draining(records.Registration{})
		f.fences(probed(suspect, f.active(records.Registration{})))
	}},
	{"UnderPolicyLeaseAnExpiredLeaseIsEnough", func(f *fixture) {
		observer := f.active(records.Registration{})
		suspect := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: 10 * time.Millisecond})
		f.elapse(10 * time.Millisecond)
		f.fences(probed(suspect, observer))
	}},
	{"AnObserverWithALongRunFencesAStaleHeartbeat", func(f *fixture) {
		for _, policy := range []records.Policy{records.PolicyLease, records.PolicyProbe} {
			suspect := f.active(records.Registration{Policy: policy, LeaseTTL: time.Millisecond})
			observer := f.active(records.Registration{LeaseTTL: 200 * time.Millisecond})
			f.elapse(time.Millisecond)
			f.steady(observer.ID, func(o records.Executor) error {
				_, err := f.store.Fence(f.Context(), stale(suspect, o))
				return err
			})
			f.equal("state", f.executor(suspect.ID).State, records.Fenced)
			f.equal("fenced by", f.executor(suspect.ID).FencedBy, observer.ID)
		}
	}},
	{"TheObserversOwnBeatsSinceTheFailureCount", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		s := probed(suspect, observer)
		s.ObserverBeats = 2
		f.beat(observer.ID)
		f.beat(observer.ID)
		f.fences(s)
	}},
	{"RepeatedItReturnsTheRow", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		s := probed(suspect, observer)
		f.fences(s)
		first := f.executor(suspect.ID)
		// The brake is full now, which must not matter.
		again, err := f.store.Fence(f.Context(), s)
		f.check(err)
		f.equal("row", ageless(again), ageless(first))
	}},
	{"ALostReplyIsRecognisedOnRepeat", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		s := f.faulty(Fence)
		f.refused(errOf(s.Fence(f.Context(), probed(suspect, observer))), records.ErrUnavailable)
		first := f.executor(suspect.ID)
		got, err := s.Fence(f.Context(), probed(suspect, observer))
		f.check(err)
		f.equal("row", ageless(got), ageless(first))
	}},
	{"AnExecutorThatLeftNeedsNoFence", func(f *fixture) {
		suspect := f.gone(records.Registration{})
		got, err := f.store.Fence(f.Context(), probed(suspect, f.active(records.Registration{})))
		f.check(err)
		f.equal("state", got.State, records.Gone)
		f.equal("state read back", f.executor(suspect.ID).State, records.Gone)
	}},
	{"AfterItNothingTheExecutorDoesLands", func(f *fixture) {
		suspect := f.active(records.Registration{})
		f.fences(probed(suspect, f.active(records.Registration{})))
		f.powerless(suspect.ID)
		f.equal("state", f.executor(suspect.ID).State, records.Fenced)
	}},
	{"WritesOneRowWhateverItHasInFlight", func(f *fixture) {
		suspect := f.active(records.Registration{})
		var held []records.Record
		for range 5 {
			held = append(held, f.claim(suspect.ID))
		}
		f.fences(probed(suspect, f.active(records.Registration{})))
		for _, r := range held {
			f.unchanged(r)
		}
	}},
}}

// powerless demands that the executor can do nothing any more that it could do
// only while it lived.
func (f *fixture) powerless(id records.ExecutorID) {
	f.Helper()
	ctx := f.Context()
	_, err := f.store.Heartbeat(ctx, id)
	f.refused(err, records.ErrNotActive)
	_, err = f.store.Reserve(ctx, reservation(id))
	f.refused(err, records.ErrNotActive)
	orphan := f.claim(f.active(records.Registration{}).ID)
	signed := takeOver(orphan, id)
	signed.SignedNotRunning = true
	_, err = f.store.TakeOver(ctx, signed)
	f.refused(err, records.ErrNotActive)
	lost := f.unknown(orphan.Executor)
	_, err = f.store.ClaimUnknown(ctx, claimOf(lost, id))
	f.refused(err, records.ErrNotActive)
	f.refused(f.store.Drain(ctx, id), records.ErrNotActive)
	f.refused(f.store.Retire(ctx, id), records.ErrNotActive)
	f.refused(f.store.Attest(ctx, id, true), records.ErrNotActive)
}

// Each of these has one thing wrong with it, so that it has one error. They
// are alone lest the fences of others fill the brake.
var refusedFenceRules = group{name: "FenceRefuses", alone: true, rules: []rule{
	{"ASuspectWhoseHeartbeatLandedSince", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		s := probed(suspect, observer)
		f.beat(suspect.ID)
		f.sparesFor(s, records.ErrRefuted)
	}},
	{"AnExpiredLeaseWhoseHolderBeatSince", func(f *fixture) {
		suspect := f.active(records.Registration{LeaseTTL: time.Millisecond, Policy: records.PolicyLease})
		s := probed(suspect, f.active(records.Registration{}))
		f.beat(suspect.ID)
		f.elapse(time.Millisecond)
		f.sparesFor(s, records.ErrRefuted)
	}},
	{"AProbeAgainstALeaseThatRuns", func(f *fixture) {
		suspect := f.active(records.Registration{Policy: records.PolicyLease})
		f.sparesFor(probed(suspect, f.active(records.Registration{})), records.ErrLeaseHeld)
	}},
	{"TheObserversPolicyIsNotAsked", func(f *fixture) {
		suspect := f.active(records.Registration{Policy: records.PolicyLease})
		observer := f.active(records.Registration{Policy: records.PolicyProbe})
		f.sparesFor(probed(suspect, observer), records.ErrLeaseHeld)
	}},
	{"AStaleHeartbeatThatIsNotStale", func(f *fixture) {
		suspect := f.active(records.Registration{})
		observer := f.active(records.Registration{LeaseTTL: 100 * time.Millisecond})
		f.steady(observer.ID, func(o records.Executor) error {
			_, err := f.store.Fence(f.Context(), stale(suspect, o))
			if errors.Is(err, records.ErrLeaseHeld) {
				return nil
			}
			if err == nil {
				return errors.New("fenced within its lease")
			}
			return err
		})
		f.equal("state", f.executor(suspect.ID).State, records.Active)
	}},
	{"AMonotonicClockWhileTheDatabasesTellsTheTruth", func(f *fixture) {
		suspect, observer := f.active(records.Registration{Policy: records.PolicyLease}), f.active(records.Registration{})
		s := probed(suspect, observer)
		s.BeatUnchanged = true
		f.sparesFor(s, records.ErrLeaseHeld)
	}},
	{"AnObserverWithAStaleHeartbeat", func(f *fixture) {
		suspect := f.active(records.Registration{})
		observer := f.active(records.Registration{LeaseTTL: 20 * time.Millisecond})
		f.elapse(10 * time.Millisecond) // half a lease is too old already
		f.sparesFor(probed(suspect, observer), records.ErrObserverUnfit)
	}},
	{"AnObserverWithoutBeatsSinceTheFailure", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		s := probed(suspect, observer)
		s.ObserverBeats = 2
		f.sparesFor(s, records.ErrObserverUnfit)
		f.beat(observer.ID)
		f.sparesFor(s, records.ErrObserverUnfit)
	}},
	{"AStalePathByAnObserverWithAYoungRun", func(f *fixture) {
		suspect := f.active(records.Registration{LeaseTTL: time.Millisecond})
		observer := f.active(records.Registration{})
		f.elapse(time.Millisecond)
		f.sparesFor(stale(suspect, f.beat(observer.ID)), records.ErrObserverUnfit)
	}},
	{"AnObserverThatIsNotActive", func(f *fixture) {
		suspect := f.fleet(5)[0]
		for _, id := range f.inactive() {
			s := probed(suspect, suspect)
			s.Observer, s.ObserverBeat = id, 0
			f.sparesFor(s, records.ErrObserverUnfit)
		}
	}},
	{"ASuspectThatNeverWas", func(f *fixture) {
		observer := f.active(records.Registration{})
		s := probed(observer, observer)
		s.Suspect = newExecutorID()
		_, err := f.store.Fence(f.Context(), s)
		f.refused(err, records.ErrNotFound)
	}},
	{"AReasonThatNoTextColumnTakes", func(f *fixture) {
		suspect, observer := f.active(records.Registration{}), f.active(records.Registration{})
		for _, reason := range []string{"\x00", "\xff", strings.Repeat("r", 1025)} {
			s := probed(suspect, observer)
			s.Reason = reason
			f.sparesFor(s, records.ErrInvalid)
		}
	}},
}}

var operatorFenceRules = group{name: "FenceByOperator", rules: []rule{
	{"WithForceWhateverThePolicyOrTheBrake", func(f *fixture) {
		for _, policy := range []records.Policy{records.PolicyLease, records.PolicyProbe} {
			for n := range 3 {
				e := f.active(records.Registration{Policy: policy})
				name := fmt.Sprint("Anna ", n)
				got, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: e.ID, Actor: name, Reason: "test", Force: true})
				f.check(err)
				f.equal("state", got.State, records.Fenced)
				f.equal("fenced by", got.FencedBy, records.ExecutorID{})
				f.equal("reason", got.FencedReason, "operator "+name+", by force: test")
				f.equal("row read back", ageless(f.executor(e.ID)), ageless(got))
			}
		}
	}},
	{"WithoutForceOnlyAnExpiredLease", func(f *fixture) {
		for _, policy := range []records.Policy{records.PolicyLease, records.PolicyProbe} {
			held := f.active(records.Registration{Policy: policy})
			_, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: held.ID, Actor: "operator", Reason: "test"})
			f.refused(err, records.ErrLeaseHeld)
			f.equal("row", ageless(f.executor(held.ID)), ageless(held))

			expired := f.active(records.Registration{Policy: policy, LeaseTTL: time.Millisecond})
			f.elapse(time.Millisecond)
			got, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: expired.ID, Actor: "operator", Reason: "test"})
			f.check(err)
			f.equal("state", got.State, records.Fenced)
			f.equal("reason", got.FencedReason, "operator operator: test")
		}
	}},
	{"RepeatedItReturnsTheRow", func(f *fixture) {
		e := f.fenced(records.Registration{})
		before := f.executor(e.ID)
		for _, force := range []bool{true, false} {
			got, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: e.ID, Actor: "somebody else", Reason: "test", Force: force})
			f.check(err)
			f.equal("row", ageless(got), ageless(before))
		}
	}},
	{"RefusesAnExecutorThatNeverWas", func(f *fixture) {
		_, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: newExecutorID(), Actor: "operator", Reason: "test", Force: true})
		f.refused(err, records.ErrNotFound)
	}},
	{"RefusesWhatCannotBeNoted", func(f *fixture) {
		e := f.active(records.Registration{})
		for what, spoil := range map[string]func(*records.Condemnation){
			"nobody":         func(c *records.Condemnation) { c.Actor = "" },
			"a NUL in it":    func(c *records.Condemnation) { c.Actor = "\x00" },
			"no UTF-8":       func(c *records.Condemnation) { c.Actor = "\xff" },
			"a long name":    func(c *records.Condemnation) { c.Actor = strings.Repeat("o", 256) },
			"no reason":      func(c *records.Condemnation) { c.Reason = "" },
			"a blank reason": func(c *records.Condemnation) { c.Reason = " \t\n" },
			"a bad reason":   func(c *records.Condemnation) { c.Reason = "a\x00" },
			"a long reason":  func(c *records.Condemnation) { c.Reason = strings.Repeat("r", records.MaxReasonBytes+1) },
		} {
			c := records.Condemnation{Executor: e.ID, Actor: "ada", Reason: "test", Force: true}
			spoil(&c)
			_, err := f.store.FenceByOperator(f.Context(), c)
			f.refusedFor(what, err)
		}
		f.equal("state", f.executor(e.ID).State, records.Active)
	}},
}}
