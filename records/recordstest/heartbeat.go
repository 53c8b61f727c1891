package recordstest

import (
	"time"

	"github.com/probate-dev/probate/records"
)

var heartbeatRules = group{name: "Heartbeat", rules: []rule{
	{"AddsOneBeatAndMovesTheTime", func(f *fixture) {
		before := f.active(records.Registration{})
		for range 3 {
			got := f.beat(before.ID)
			if got.Beat != before.Beat+1 || got.HeartbeatAt.Before(before.HeartbeatAt) {
				f.Errorf("beat %d at %s after beat %d at %s", got.Beat, got.HeartbeatAt, before.Beat, before.HeartbeatAt)
			}
			f.equal("row read back", ageless(f.executor(before.ID)), ageless(got))
			before = got
		}
	}},
	{"ADrainingExecutorStillBeats", func(f *fixture) {
		e := f.draining(records.Registration{})
		got := f.beat(e.ID)
		f.equal("state", got.State, records.Draining)
		f.equal("beat", got.Beat, e.Beat+1)
	}},
	{"RefusesTerminalAndUnknownExecutors", func(f *fixture) {
		for what, id := range f.inactive() {
			if what == "draining" {
				continue
			}
			_, err := f.store.Heartbeat(f.Context(), id)
			f.refused(err, records.ErrNotActive)
		}
	}},
	{"ARefusedBeatChangesNothing", func(f *fixture) {
		e := f.fenced(records.Registration{})
		before := f.executor(e.ID)
		_, err := f.store.Heartbeat(f.Context(), e.ID)
		f.refused(err, records.ErrNotActive)
		f.equal("row", ageless(f.executor(e.ID)), ageless(before))
	}},
	{"TheRunGoesOnWhileBeatsAreFrequent", func(f *fixture) {
		e := f.active(records.Registration{LeaseTTL: long})
		for range 3 {
			got := f.beat(e.ID)
			if !got.LeaseSince.Equal(e.LeaseSince) {
				f.Errorf("lease since %s, want %s", got.LeaseSince, e.LeaseSince)
			}
		}
	}},
	{"ALateBeatBeginsANewRun", func(f *fixture) {
		e := f.active(records.Registration{LeaseTTL: 40 * time.Millisecond})
		f.elapse(20 * time.Millisecond)
		late := f.beat(e.ID)
		next := f.beat(e.ID)
		if late.LeaseSince.Sub(e.HeartbeatAt) < 20*time.Millisecond || late.LeaseSince.After(next.HeartbeatAt) {
			f.Errorf("lease since %s, want the late beat's time %s", late.LeaseSince, late.HeartbeatAt)
		}
	}},
	{"LoadExecutorKnowsOnlyWhoRegistered", func(f *fixture) {
		e := f.active(records.Registration{})
		f.equal("row", ageless(f.executor(e.ID)), ageless(e))
		_, err := f.store.LoadExecutor(f.Context(), newExecutorID())
		f.refused(err, records.ErrNotFound)
	}},
	{"TheAgeGrowsWithTheDatabasesClock", func(f *fixture) {
		e := f.active(records.Registration{LeaseTTL: 10 * time.Millisecond})
		f.elapse(10 * time.Millisecond)
		if got := f.executor(e.ID); !got.Stale() {
			f.Errorf("age %s after its lease of %s elapsed", got.HeartbeatAge, got.LeaseTTL)
		}
	}},
}}

// inactive is one executor of each kind that may not claim.
func (f *fixture) inactive() map[string]records.ExecutorID {
	f.Helper()
	return map[string]records.ExecutorID{
		"draining":         f.draining(records.Registration{}).ID,
		"gone":             f.gone(records.Registration{}).ID,
		"fenced":           f.fenced(records.Registration{}).ID,
		"never registered": newExecutorID(),
	}
}

var leavingRules = group{name: "Leaving", rules: []rule{
	{"DrainMovesActiveToDraining", func(f *fixture) {
		e := f.active(records.Registration{})
		f.check(f.store.Drain(f.Context(), e.ID))
		f.equal("state", f.executor(e.ID).State, records.Draining)
	}},
	{"DrainRepeatedDoesNothing", func(f *fixture) {
		e := f.draining(records.Registration{})
		before := f.executor(e.ID)
		f.check(f.store.Drain(f.Context(), e.ID))
		f.equal("row", ageless(f.executor(e.ID)), ageless(before))
	}},
	{"DrainRefusesTerminalAndUnknownExecutors", func(f *fixture) {
		for what, id := range f.inactive() {
			if what != "draining" {
				f.refused(f.store.Drain(f.Context(), id), records.ErrNotActive)
			}
		}
	}},
	{"RetireMovesDrainingToGone", func(f *fixture) {
		e := f.draining(records.Registration{})
		f.check(f.store.Retire(f.Context(), e.ID))
		f.equal("state", f.executor(e.ID).State, records.Gone)
	}},
	{"RetireRepeatedDoesNothing", func(f *fixture) {
		e := f.gone(records.Registration{})
		before := f.executor(e.ID)
		f.check(f.store.Retire(f.Context(), e.ID))
		f.equal("row", ageless(f.executor(e.ID)), ageless(before))
	}},
	{"RetireRefusesAnExecutorThatDidNotDrain", func(f *fixture) {
		e := f.active(records.Registration{})
		f.refused(f.store.Retire(f.Context(), e.ID), records.ErrNotActive)
		f.equal("state", f.executor(e.ID).State, records.Active)
	}},
	{"RetireRefusesFencedAndUnknownExecutors", func(f *fixture) {
		e := f.fenced(records.Registration{})
		f.refused(f.store.Retire(f.Context(), e.ID), records.ErrNotActive)
		f.equal("state", f.executor(e.ID).State, records.Fenced)
		f.refused(f.store.Retire(f.Context(), newExecutorID()), records.ErrNotActive)
	}},
	{"AnExecutorThatLeftIsNotFencedAfterwards", func(f *fixture) {
		e := f.gone(records.Registration{})
		f.fence(e.ID)
		f.equal("state", f.executor(e.ID).State, records.Gone)
	}},
}}

var attestRules = group{name: "Attest", rules: []rule{
	{"NotesWhenAPeerReachedIt", func(f *fixture) {
		e := f.active(records.Registration{})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		got := f.executor(e.ID)
		if got.AttestedAt.Before(e.HeartbeatAt) || !got.Attested(long) {
			f.Errorf("attested at %s, age %s, want just now", got.AttestedAt, got.AttestedAge)
		}
	}},
	{"ItsAgeGrowsAndIsRenewed", func(f *fixture) {
		e := f.active(records.Registration{})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		first := f.executor(e.ID)
		f.elapse(10 * time.Millisecond)
		if got := f.executor(e.ID); got.Attested(10*time.Millisecond) || !got.AttestedAt.Equal(first.AttestedAt) {
			f.Errorf("age %s, attested at %s, want an age over 10ms and %s", got.AttestedAge, got.AttestedAt, first.AttestedAt)
		}
		f.check(f.store.Attest(f.Context(), e.ID, true))
		if got := f.executor(e.ID); !got.AttestedAt.After(first.AttestedAt) {
			f.Errorf("attested at %s, want later than %s", got.AttestedAt, first.AttestedAt)
		}
	}},
	{"AFailureTakesTheProofBack", func(f *fixture) {
		e := f.active(records.Registration{})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		f.check(f.store.Attest(f.Context(), e.ID, false))
		f.equal("row", ageless(f.executor(e.ID)), ageless(e))
	}},
	{"ADrainingExecutorMayBeAttested", func(f *fixture) {
		e := f.draining(records.Registration{})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		got := f.executor(e.ID)
		f.equal("state", got.State, records.Draining)
		f.equal("attested", got.Attested(long), true)
	}},
	{"IsNoHeartbeat", func(f *fixture) {
		e := f.active(records.Registration{})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		got := f.executor(e.ID)
		f.equal("beat", got.Beat, e.Beat)
		f.equal("heartbeat", got.HeartbeatAt, e.HeartbeatAt)
	}},
	{"RefusesTerminalAndUnknownExecutors", func(f *fixture) {
		for what, id := range f.inactive() {
			if what == "draining" {
				continue
			}
			for _, proven := range []bool{true, false} {
				f.refused(f.store.Attest(f.Context(), id, proven), records.ErrNotActive)
			}
		}
	}},
}}
