//go:build linux || darwin

package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Processes take turns at writing through locks on single bytes of a file
// beside the database. The kernel drops a lock with the process that holds it,
// so nothing is left behind by one that was killed.
//
// Every store has a place, 0 to places-1, which it locks for as long as it is
// open. One that wants to write locks its want, then tries to lock the turn,
// and notes its place in the file. It yields the turn to anybody whose place
// lies between the place of the last writer and its own, round the ring, and
// who wants it. So whoever waits sees every other store write at most once,
// apart from the one that had the turn when it came.
//
// SQLite's own busy handler retries at random. Between processes that always
// have something to write, one can then lose for seconds.
type turn struct {
	f     *os.File
	place int64
	looks uint64 // how often this store has looked for its turn
	// stalled holds places that wanted a free turn and did not take it, because
	// their process is stopped, and how often they had looked by then. They are
	// passed over until they look again.
	stalled map[int64]uint64
	// overdue is how long a free turn is kept for a place before it is stalled.
	overdue time.Duration
	// observe hears how many turns of others passed while this store waited.
	observe func(others int64)
}

// errNoPlace: more stores are open on one file than there are places.
var errNoPlace = errors.New("too many stores are open on this file")

const (
	places    = 1 << 10
	turnByte  = 0
	placeByte = 1 << 20
	wantByte  = 2 << 20
	// The file's content: place of the last writer and number of turns so far,
	// then for each place how often it has looked.
	turnBytes  = 16
	looksBytes = 8
	// pollTurn is how often a waiting store looks: well below the time that a
	// commit takes to reach the disk, so that little of the disk's time is lost
	// between two writers.
	pollTurn = 100 * time.Microsecond
)

func openTurn(path string) (*turn, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// A place may have had another store before: no two begin alike.
	t := &turn{f: f, looks: rand.Uint64(), stalled: make(map[int64]uint64), overdue: 250 * time.Millisecond, observe: func(int64) {}}
	for t.place = range int64(places) {
		if ok, err := t.lock(placeByte + t.place); ok || err != nil {
			return t, errors.Join(err, closeUnless(err == nil, f))
		}
	}
	return nil, errors.Join(errNoPlace, f.Close())
}

func closeUnless(ok bool, f *os.File) error {
	if ok {
		return nil
	}
	return f.Close()
}

// acquire waits for the turn. Only one goroutine at a time may.
func (t *turn) acquire(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := t.lock(wantByte + t.place); err != nil {
		return err
	}
	defer t.unlock(wantByte + t.place)
	_, since, err := t.note()
	if err != nil {
		return err
	}
	w := wait{turn: t}
	for {
		if err := t.look(); err != nil {
			return err
		}
		count, won, err := w.try()
		if err != nil {
			return err
		}
		if won {
			t.observe(count - since)
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		pause(pollTurn)
	}
}

// wait is one wait for the turn.
type wait struct {
	*turn
	kept  int64     // the place that the free turn is kept for
	since time.Time // since when; zero: for nobody
}

// try takes the turn if it is free and nobody comes before. It returns the
// number of turns before this one.
func (w *wait) try() (count int64, won bool, err error) {
	if ok, err := w.lock(turnByte); !ok {
		w.since = time.Time{}
		return 0, false, err
	}
	last, count, err := w.note()
	if err == nil {
		var before bool
		if before, err = w.before(last); err == nil && !before {
			if err = w.setNote(w.place, count+1); err == nil {
				return count, true, nil
			}
		}
	}
	w.unlock(turnByte)
	return 0, false, err
}

// before reports whether a place that comes before ours wants the turn, and
// loses patience with one that does not take it.
func (w *wait) before(last int64) (bool, error) {
	place, found, err := w.nextWant(last)
	if err != nil || !found {
		return false, err
	}
	if w.since.IsZero() || place != w.kept {
		w.kept, w.since = place, time.Now()
	}
	if time.Since(w.since) < w.overdue {
		return true, nil
	}
	w.since = time.Time{}
	if w.stalled[place], err = w.looksOf(place); err != nil {
		return false, err
	}
	return w.before(last)
}

// nextWant finds a wanting place that comes after the last writer's and before
// ours, round the ring.
func (t *turn) nextWant(last int64) (int64, bool, error) {
	if err := t.forgive(); err != nil {
		return 0, false, err
	}
	if last < t.place {
		return t.wanting(last+1, t.place)
	}
	place, found, err := t.wanting(last+1, places)
	if !found && err == nil {
		place, found, err = t.wanting(0, t.place)
	}
	return place, found, err
}

// wanting finds a place in [from, to) that wants the turn and is not stalled.
func (t *turn) wanting(from, to int64) (int64, bool, error) {
	for from < to {
		place, found, err := t.locked(wantByte+from, to-from)
		if err != nil || !found {
			return 0, false, err
		}
		place = max(place-wantByte, from)
		if _, stalled := t.stalled[place]; !stalled {
			return place, true, nil
		}
		// The kernel names some lock of the range, not the first.
		if before, found, err := t.wanting(from, place); found || err != nil {
			return before, found, err
		}
		from = place + 1
	}
	return 0, false, nil
}

// forgive forgets stalled places that have looked again.
func (t *turn) forgive() error {
	for place, then := range t.stalled {
		if now, err := t.looksOf(place); err != nil {
			return err
		} else if now != then {
			delete(t.stalled, place)
		}
	}
	return nil
}

// look shows the others that this store is awake.
func (t *turn) look() error {
	t.looks++
	var b [looksBytes]byte
	binary.LittleEndian.PutUint64(b[:], t.looks)
	_, err := t.f.WriteAt(b[:], turnBytes+t.place*looksBytes)
	return err
}

// looksOf is how often a place has looked.
func (t *turn) looksOf(place int64) (uint64, error) {
	var b [looksBytes]byte
	if _, err := t.f.ReadAt(b[:], turnBytes+place*looksBytes); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// release lets the next one write.
func (t *turn) release() { t.unlock(turnByte) }

func (t *turn) close() error { return t.f.Close() }

// note reads the last writer's place and the number of turns so far.
func (t *turn) note() (last, count int64, err error) {
	var b [turnBytes]byte
	if _, err := t.f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	last = int64(binary.LittleEndian.Uint64(b[:8])) % places
	return last, int64(binary.LittleEndian.Uint64(b[8:])), nil
}

func (t *turn) setNote(last, count int64) error {
	var b [turnBytes]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(last))
	binary.LittleEndian.PutUint64(b[8:], uint64(count))
	_, err := t.f.WriteAt(b[:], 0)
	return err
}

// lock tries to lock one byte.
func (t *turn) lock(at int64) (bool, error) {
	err := t.fcntl(setLock, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// unlock gives one byte back. It can fail only for a closed file, whose locks
// are gone anyway.
func (t *turn) unlock(at int64) {
	_ = t.fcntl(setLock, &unix.Flock_t{Type: unix.F_UNLCK, Start: at, Len: 1})
}

// locked finds a byte of the range that another store has locked.
func (t *turn) locked(at, n int64) (int64, bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: n}
	err := t.fcntl(getLock, &l)
	return l.Start, err == nil && l.Type != unix.F_UNLCK, err
}

func (t *turn) fcntl(cmd int, l *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(t.f.Fd(), cmd, l); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// pause waits for less than the runtime's timers, which are coarse in an idle
// process, can.
func pause(d time.Duration) {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	_, _ = unix.Select(0, nil, nil, nil, &tv) // an interrupted pause is a short one
}
