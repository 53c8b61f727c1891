//go:build unix

package move_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
)

// unread is a source that must not be opened.
type unread struct{ t *testing.T }

func (u unread) Open(context.Context, int64, string) (*move.Body, error) {
	u.t.Error("the source is read again")
	return nil, errors.New("not to be read")
}

// TestLanding is about owners that die right after their commit: what the next
// one finds is all that they have saved.
func TestLanding(t *testing.T) {
	t.Parallel()
	want := content(6 << 20)

	// dies copies at epoch 10 and returns what was saved last before the commit.
	dies := func(t *testing.T, sink move.Sink, beforeCommit error) *move.Checkpoint {
		t.Helper()
		from := newFile(t)
		from.write(t, want)
		var saved []byte
		j := job(from.source(), sink)
		j.SaveEvery = time.Hour
		j.Save = func(_ context.Context, c move.Checkpoint) (err error) {
			saved, err = json.Marshal(c)
			return err
		}
		j.Keep = func(error) bool { return true }
		// What is saved after this instant, the owner has not lived to save.
		var last []byte
		j.BeforeCommit = func(context.Context) error {
			last = saved
			return beforeCommit
		}
		if _, err := move.Copy(t.Context(), j); !errors.Is(err, beforeCommit) {
			t.Fatal(err)
		}
		var p move.Checkpoint
		if err := json.Unmarshal(last, &p); err != nil {
			t.Fatal(err)
		}
		return &p
	}
	next := func(src move.Source, sink move.Sink, p *move.Checkpoint) move.Job {
		j := job(src, sink)
		j.Epoch, j.Resume = 11, p
		return j
	}
	seen := func(t *testing.T, sink move.Sink, p *move.Checkpoint) {
		t.Helper()
		r, err := move.Copy(t.Context(), next(unread{t}, sink, p))
		if err != nil || r.Bytes != int64(len(want)) || r.SHA256 != sha256.Sum256(want) {
			t.Errorf("result %+v, %v", r, err)
		}
	}

	t.Run("OfAFileIsSeenByItsBytes", func(t *testing.T) {
		t.Parallel()
		to := newFile(t)
		seen(t, to.sink(), dies(t, to.sink(), nil))
		to.wantContent(t, want)
		to.wantNames(t, 1)
	})

	t.Run("OfAnObjectIsSeenByItsMark", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		seen(t, b.sink("x"), dies(t, b.sink("x"), nil))
		b.wantObject(t, "x", want)
		if left := b.Leftovers(t); len(left) > 0 {
			t.Errorf("of uploads there is left %q", left)
		}
	})

	t.Run("ThatDidNotTakePlaceIsMadeAgain", func(t *testing.T) {
		t.Parallel()
		fenced := errors.New("fenced")
		from, to, b := newFile(t), newFile(t), newBucket(t)
		from.write(t, want)
		mustCopy(t, next(from.source(), to.sink(), dies(t, to.sink(), fenced)), want)
		to.wantContent(t, want)
		to.wantNames(t, 1)
		mustCopy(t, next(from.source(), b.sink("x"), dies(t, b.sink("x"), fenced)), want)
		b.wantObject(t, "x", want)
		if left := b.Leftovers(t); len(left) > 0 {
			t.Errorf("of uploads there is left %q", left)
		}
	})

	t.Run("IsKnownAlsoToWhoGoesOnWithWhatWasKept", func(t *testing.T) {
		t.Parallel()
		from, to, lost := newFile(t), newFile(t), errors.New("lost")
		from.write(t, want)
		var c checkpoints
		j := job(from.source(), to.sink())
		j.Save, j.SaveEvery = c.save, time.Hour
		j.Keep = func(error) bool { return true }
		j.BeforeCommit = func(context.Context) error { return lost }
		if _, err := move.Copy(t.Context(), j); !errors.Is(err, lost) {
			t.Fatal(err)
		}
		if p := c.last(t); p.Landing == nil || p.Offset != int64(len(want)) {
			t.Errorf("kept is %+v", p)
		}
		mustCopy(t, next(from.source(), to.sink(), c.last(t)), want)
		to.wantNames(t, 1)
	})

	t.Run("IsNotSeenInWhatOnlyLooksAlike", func(t *testing.T) {
		t.Parallel()
		from, to, b := newFile(t), newFile(t), newBucket(t)
		from.write(t, want)
		p := dies(t, to.sink(), nil)
		other := append([]byte{want[0] + 1}, want[1:]...)
		to.write(t, other) // of the same length
		mustCopy(t, next(from.source(), to.sink(), p), want)
		to.wantContent(t, want)

		if err := os.Remove(to.name()); err != nil {
			t.Fatal(err)
		}
		mustCopy(t, next(from.source(), to.sink(), p), want)
		to.wantContent(t, want)

		p = dies(t, b.sink("x"), nil)
		from.write(t, other)
		j := job(from.source(), b.sink("x"))
		j.Flow = "another"
		mustCopy(t, j, other)
		from.write(t, want)
		mustCopy(t, next(from.source(), b.sink("x"), p), want)
		b.wantObject(t, "x", want)
	})
}
