package sqlite_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// clock is a clock that the test holds.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestClock(t *testing.T) {
	t.Parallel()

	t.Run("ThatSteppedBackLeavesAFenceToTheBeat", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, sqlite.Config{})
		a, b := n.register(records.Registration{LeaseTTL: time.Minute}), n.register(records.Registration{LeaseTTL: time.Minute})
		n.clock.Advance(-time.Hour)
		stale := records.Suspicion{Suspect: a.ID, Observer: b.ID}
		for range 4 { // b beats for more than a lease by the clock that is
			n.beat(b.ID)
			n.clock.Advance(20 * time.Second)
		}
		if n.fences(stale, records.ErrLeaseHeld) {
			t.Error("fenced, though a heartbeat in the future measures no lease")
		}
		stale.BeatUnchanged = true
		if !n.fences(stale, nil) {
			t.Error("not fenced, though the beat stood still for a lease")
		}
	})

	t.Run("ThatSteppedBackDoesNotHoldTheBrake", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, sqlite.Config{})
		a, b := n.register(records.Registration{LeaseTTL: time.Minute}), n.register(records.Registration{LeaseTTL: time.Minute})
		n.kill(n.register(records.Registration{}).ID)
		suspicion := records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID}
		n.clock.Advance(-time.Second)
		if n.fences(suspicion, records.ErrBraked) {
			t.Error("fenced, though somebody was within a lease")
		}
		n.clock.Advance(-time.Hour)
		if !n.fences(suspicion, nil) {
			t.Error("not fenced, though whoever was fenced was so an hour from now")
		}
	})

	t.Run("ThatRunsRightMakesBeatUnchangedVoid", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, sqlite.Config{})
		a, b := n.register(records.Registration{}), n.register(records.Registration{LeaseTTL: time.Minute})
		for range 4 {
			n.clock.Advance(20 * time.Second)
			n.beat(b.ID)
		}
		if n.fences(records.Suspicion{Suspect: a.ID, Observer: b.ID, BeatUnchanged: true}, records.ErrLeaseHeld) {
			t.Error("fenced within a lease")
		}
	})
}

func TestCase(t *testing.T) {
	t.Parallel()
	t.Run("K13_ClocksFarFromTheTruth", func(t *testing.T) {
		t.Parallel()
		for _, off := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
			n := newNode(t, sqlite.Config{})
			n.clock.Advance(off)
			a := n.register(records.Registration{})
			r := reserve(t, n.Store, a.ID)
			if !n.finalizes(r.ID, r.Fence()) {
				t.Errorf("clock off by %s: not finalized", off)
			}
		}
	})
}

func TestForeignHost(t *testing.T) {
	t.Parallel()
	n := newNode(t, sqlite.Config{BootID: "here"})
	there := open(t, sqlite.Config{Path: n.path, BootID: "there", Clock: n.clock.Now})
	a := n.register(records.Registration{LeaseTTL: time.Minute})
	join := func() error {
		_, err := there.Register(t.Context(), registration(records.Registration{}))
		return err
	}
	if err := join(); !errors.Is(err, records.ErrForeignHost) {
		t.Errorf("register beside a live executor of another host: %v, want ErrForeignHost", err)
	}
	n.clock.Advance(2 * time.Minute)
	if err := join(); err != nil {
		t.Errorf("register beside an executor whose lease has run out: %v", err)
	}
	if _, err := n.Register(t.Context(), registration(records.Registration{})); !errors.Is(err, records.ErrForeignHost) {
		t.Errorf("register on the first host, now foreign: %v, want ErrForeignHost", err)
	}
	n.beat(a.ID) // what runs already goes on
}
