//go:build linux || darwin

package sqlite

import (
	"context"
	"time"
)

// SomebodyWaits reports whether another store waits for its turn.
func SomebodyWaits(s *Store) bool {
	_, found, err := s.turn.locked(wantByte, places)
	return found && err == nil
}

// OnTurn has every turn of s reported, with how many of others came before. A
// place that is slow to take its turn is waited for, however long it takes.
func OnTurn(s *Store, observe func(others int64)) {
	s.turn.observe = observe
	s.turn.overdue = time.Hour
}

// Turn is a place in the queue, without a store.
type Turn struct{ *turn }

// OpenTurn takes a place. A turn that is left unused for longer than overdue
// passes on.
func OpenTurn(path string, overdue time.Duration) (Turn, error) {
	t, err := openTurn(path)
	if err == nil {
		t.overdue = overdue
	}
	return Turn{t}, err
}

// Acquire waits for the turn.
func (t Turn) Acquire(ctx context.Context) error { return t.acquire(ctx) }

// Release passes it on.
func (t Turn) Release() { t.release() }

// Want notes a want, as a store does that is stopped right after it.
func (t Turn) Want() error { _, err := t.lock(wantByte + t.place); return err }

// Waiting is how many others want the turn.
func (t Turn) Waiting() (n int) {
	for place := range int64(places) {
		if _, found, _ := t.locked(wantByte+place, 1); found {
			n++
		}
	}
	return n
}

// Stalled is how many places this one passes over.
func (t Turn) Stalled() int { return len(t.stalled) }

// Close gives the place back.
func (t Turn) Close() error { return t.close() }
