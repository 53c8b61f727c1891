package postgres_test

import (
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// TestClockThatSteppedBack shifts rows forward, as if they had been written
// before the database's clock went back by two hours.
func TestClockThatSteppedBack(t *testing.T) {
	t.Parallel()
	t.Run("LeavesObserversFit", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e := a.boot()
		a.exec("UPDATE probate.executors SET heartbeat_at = heartbeat_at + interval '2 hours', lease_since = lease_since + interval '2 hours'")
		first, err := a.store.Heartbeat(t.Context(), e.ID)
		a.check(err)
		if age := first.HeartbeatAt.Sub(first.LeaseSince); age < 0 || age > time.Minute {
			t.Errorf("lease since %s at a beat of %s", first.LeaseSince, first.HeartbeatAt)
		}
		next, err := a.store.Heartbeat(t.Context(), e.ID)
		a.check(err)
		if !next.LeaseSince.Equal(first.LeaseSince) {
			t.Errorf("the run that began at %s begins again at %s", first.LeaseSince, next.LeaseSince)
		}
	})
	t.Run("DoesNotHoldTheBrake", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		suspect, observer := a.boot(), a.boot()
		_, err := a.store.FenceByOperator(t.Context(), records.Condemnation{Executor: a.boot().ID, Actor: "Anna", Reason: "test", Force: true})
		a.check(err)
		a.exec("UPDATE probate.executors SET fenced_at = fenced_at + interval '2 hours' WHERE state = 'fenced'")
		got, err := a.store.Fence(t.Context(), probed(suspect, observer))
		a.check(err)
		if got.State != records.Fenced {
			t.Errorf("the suspect is %s, want fenced", got.State)
		}
	})
}
