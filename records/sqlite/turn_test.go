//go:build linux || darwin

package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	const never = time.Hour

	t.Run("PassesToWhoeverWaits", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "turn")
		a, b, c := openTurn(t, path, never), openTurn(t, path, never), openTurn(t, path, never)
		acquire(t, a)
		order := make(chan string, 2)
		var wg sync.WaitGroup
		defer wg.Wait()
		for name, turn := range map[string]sqlite.Turn{"b": b, "c": c} {
			wg.Go(func() {
				acquire(t, turn)
				order <- name
				turn.Release()
			})
		}
		await(t, func() bool { return a.Waiting() == 2 })
		a.Release()
		acquire(t, a) // it asks again at once, and yet comes last
		defer a.Release()
		for _, want := range []string{"b", "c"} {
			select {
			case got := <-order:
				if got != want {
					t.Errorf("%s had its turn, want %s", got, want)
				}
			default:
				t.Fatalf("a had two turns while %s waited", want)
			}
		}
	})

	t.Run("GoesRoundSoThatALateComerDoesNotOvertake", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "turn")
		a, b, c := openTurn(t, path, never), openTurn(t, path, never), openTurn(t, path, never)
		acquire(t, b)
		first := make(chan string, 2)
		var wg sync.WaitGroup
		defer wg.Wait()
		start := func(name string, turn sqlite.Turn) {
			wg.Go(func() {
				acquire(t, turn)
				first <- name
				turn.Release()
			})
		}
		start("a", a)
		await(t, func() bool { return b.Waiting() == 1 })
		start("c", c)
		await(t, func() bool { return b.Waiting() == 2 })
		b.Release()
		if got := []string{<-first, <-first}; got[0] != "c" || got[1] != "a" {
			t.Errorf("turns went to %v, want c, the next after b, and then a", got)
		}
	})

	t.Run("PassesOverOneThatWasStopped", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "turn")
		stopped, a := openTurn(t, path, never), openTurn(t, path, time.Millisecond)
		if err := stopped.Want(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			acquire(t, a)
			a.Release()
		}
		if n := a.Stalled(); n != 1 {
			t.Errorf("%d places are passed over, want 1", n)
		}
		acquire(t, stopped) // it goes on
		stopped.Release()
		acquire(t, a)
		a.Release()
		if n := a.Stalled(); n != 0 {
			t.Errorf("%d places are passed over after it went on, want none", n)
		}
	})

	t.Run("EndsWaitingWithTheContext", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "turn")
		a, b := openTurn(t, path, never), openTurn(t, path, never)
		acquire(t, a)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(gone) })
		if err := b.Acquire(ctx); !errors.Is(err, gone) {
			t.Errorf("acquire = %v, want the cause", err)
		}
		if a.Waiting() != 0 {
			t.Error("the want outlived the wait")
		}
		a.Release()
	})

	t.Run("GoesOnWithAClosedPlace", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "turn")
		a, b := openTurn(t, path, never), openTurn(t, path, never)
		acquire(t, a)
		if err := a.Close(); err != nil { // as the kernel does for one that was killed
			t.Fatal(err)
		}
		acquire(t, b)
		b.Release()
	})
}

func openTurn(t *testing.T, path string, overdue time.Duration) sqlite.Turn {
	t.Helper()
	turn, err := sqlite.OpenTurn(path, overdue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turn.Close() })
	return turn
}

func acquire(t *testing.T, turn sqlite.Turn) {
	t.Helper()
	if err := turn.Acquire(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestOccupied: a transaction that does not end makes other writers
// unavailable, and nobody else.
func TestOccupied(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	other := open(t, sqlite.Config{Path: path})
	s := open(t, sqlite.Config{Path: path, Patience: 20 * time.Millisecond})
	a := register(t, s, records.Registration{})
	r := reserve(t, s, a.ID)
	leave := occupy(t, other)

	t.Run("AWriteIsUnavailableInTime", func(t *testing.T) {
		if _, err := s.Heartbeat(t.Context(), a.ID); !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("heartbeat = %v, want ErrUnavailable", err)
		}
	})
	t.Run("ACallerInAHurryLeavesWithItsCause", func(t *testing.T) {
		late := errors.New("own deadline")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, late)
		defer cancel()
		if _, err := s.Heartbeat(ctx, a.ID); !errors.Is(err, late) || !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("heartbeat = %v, want ErrUnavailable and the cause", err)
		}
	})
	t.Run("AReaderDoesNotWait", func(t *testing.T) {
		if _, err := s.Load(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
		if f, err := s.Fleet(t.Context()); err != nil || f.Cluster != "test" {
			t.Errorf("fleet = %+v, %v; want what was committed", f, err)
		}
	})
	close(leave)
	t.Run("AWriteLandsAfterwards", func(t *testing.T) {
		patient := open(t, sqlite.Config{Path: path})
		if _, err := patient.Heartbeat(t.Context(), a.ID); err != nil {
			t.Error(err)
		}
	})
}

// TestClockIsReadAfterTheLockWasWon: a write that waited acts at the time at
// which it acts, not at which it came.
func TestClockIsReadAfterTheLockWasWon(t *testing.T) {
	t.Parallel()
	n := newNode(t, sqlite.Config{})
	a := n.register(records.Registration{LeaseTTL: time.Minute})
	other := open(t, sqlite.Config{Path: n.path})
	leave := occupy(t, other)
	beat := make(chan records.Executor, 1)
	go func() {
		e, err := n.Heartbeat(t.Context(), a.ID)
		if err != nil {
			t.Error(err)
		}
		beat <- e
	}()
	await(t, func() bool { return sqlite.SomebodyWaits(other) })
	n.clock.Advance(time.Second)
	close(leave)
	if e := <-beat; !e.HeartbeatAt.Equal(n.clock.Now()) {
		t.Errorf("heartbeat at %s, want %s: it read the clock before it waited", e.HeartbeatAt, n.clock.Now())
	}
}
