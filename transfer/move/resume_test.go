//go:build unix

package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
)

func TestResume(t *testing.T) {
	t.Parallel()

	// interrupted copies half of 4 MiB at epoch 10, is cancelled, and returns
	// what the next owner finds.
	interrupted := func(t *testing.T, f *flaky, to file, src move.Source) *move.Checkpoint {
		t.Helper()
		var c checkpoints
		suspend := errors.New("suspend")
		ctx, cancel := context.WithCancelCause(t.Context())
		j := job(src, to.sink())
		j.Save, j.SaveEvery = c.save, time.Nanosecond
		j.Keep = func(err error) bool { return errors.Is(err, suspend) }
		j.Progress = func(n int64) {
			if n >= 2<<20 {
				cancel(suspend)
			}
		}
		if _, err := move.Copy(ctx, j); !errors.Is(err, suspend) {
			t.Fatalf("error is %v", err)
		}
		to.wantNames(t, 1)
		f.total(t)
		return c.last(t)
	}
	later := func(j move.Job, p *move.Checkpoint) move.Job {
		j.Epoch++
		// By way of the store.
		b, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		j.Resume = new(move.Checkpoint)
		if err := json.Unmarshal(b, j.Resume); err != nil {
			panic(err)
		}
		return j
	}

	t.Run("GoesOnAtALaterEpoch", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 0, 0), newFile(t)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		p := interrupted(t, f, to, src)
		r := mustCopy(t, later(job(src, to.sink()), p), f.want)
		to.wantContent(t, f.want)
		to.wantNames(t, 1)
		if sent := f.total(t); r.ResumedFrom != p.Offset || p.Offset < 2<<20 || sent != 4<<20-p.Offset {
			t.Errorf("resumed from %d of %d, the source sent %d", r.ResumedFrom, p.Offset, sent)
		}
	})

	t.Run("SavesWhereItStoppedWhenItIsKept", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 0, 0), newFile(t)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		ctx, cancel := context.WithCancel(t.Context())
		j := job(src, to.sink())
		j.Save, j.SaveEvery = c.save, time.Hour
		j.Keep = func(error) bool { return true }
		j.Progress = func(n int64) {
			if n >= 2<<20 {
				cancel()
			}
		}
		if _, err := move.Copy(ctx, j); !errors.Is(err, context.Canceled) {
			t.Fatalf("error is %v", err)
		}
		if p := c.last(t); len(c.saved) != 1 || p.Offset < 2<<20 {
			t.Errorf("saved %d times, up to %d", len(c.saved), p.Offset)
		}
	})

	t.Run("GoesOnWhereNothingIsLeft", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 0, 0), newFile(t)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		j := job(src, to.sink())
		j.Save, j.SaveEvery = c.save, time.Nanosecond
		j.BeforeCommit = func(context.Context) error { return errors.New("killed right before the commit") }
		j.Keep = func(error) bool { return true }
		if _, err := move.Copy(t.Context(), j); err == nil {
			t.Fatal("committed")
		}
		f.total(t)
		r := mustCopy(t, later(job(src, to.sink()), c.last(t)), f.want)
		to.wantContent(t, f.want)
		if sent := f.total(t); r.ResumedFrom != 4<<20 || sent > 1000 { // some words about a range
			t.Errorf("resumed from %d, the source sent %d", r.ResumedFrom, sent)
		}
	})

	t.Run("BeginsAgainWhenTheSourceIsAnother", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 0, 0), newFile(t)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		p := interrupted(t, f, to, src)
		f.want = f.want[1:]
		f.etag.Store(new(`"two"`))
		if r := mustCopy(t, later(job(src, to.sink()), p), f.want); r.ResumedFrom != 0 {
			t.Errorf("resumed from %d", r.ResumedFrom)
		}
		to.wantContent(t, f.want)
		to.wantNames(t, 1)
	})

	t.Run("BeginsAgainWhenThePartIsNotWhatItWas", func(t *testing.T) {
		t.Parallel()
		for name, spoil := range map[string]func(t *testing.T, part file){
			"gone":      func(t *testing.T, part file) { remove(t, part) },
			"shorter":   func(t *testing.T, part file) { part.write(t, content(100)) },
			"otherwise": func(t *testing.T, part file) { part.write(t, make([]byte, 4<<20)) },
		} {
			f, to := newFlaky(4<<20, 0, 0), newFile(t)
			src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
			p := interrupted(t, f, to, src)
			found, err := filepath.Glob(filepath.Join(to.root, ".*.part"))
			if err != nil || len(found) != 1 {
				t.Fatalf("parts %q, %v", found, err)
			}
			spoil(t, file{to.root, filepath.Base(found[0])})
			if r := mustCopy(t, later(job(src, to.sink()), p), f.want); r.ResumedFrom != 0 {
				t.Errorf("%s: resumed from %d", name, r.ResumedFrom)
			}
			to.wantContent(t, f.want)
			to.wantNames(t, 1)
		}
	})

	t.Run("BeginsAgainWithACheckpointThatMakesNoSense", func(t *testing.T) {
		t.Parallel()
		from, to, want := newFile(t), newFile(t), content(1<<20)
		from.write(t, want)
		j := job(from.source(), to.sink())
		j.Resume = &move.Checkpoint{Offset: 100, Hash: []byte("no state"), Validator: "v", Token: "{", Length: 1 << 20}
		mustCopy(t, j, want)
		to.wantContent(t, want)
	})

	t.Run("SurvivesAnOwnerThatWakesUp", func(t *testing.T) {
		t.Parallel()
		// The old owner is asked right before its commit, and there the new
		// one takes over, resumes, and ends.
		f, to := newFlaky(4<<20, 0, 0), newFile(t)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		old := job(src, to.sink())
		old.Save, old.SaveEvery = c.save, time.Nanosecond
		old.BeforeCommit = func(ctx context.Context) error {
			r, err := move.Copy(ctx, later(job(src, to.sink()), c.last(t)))
			if err != nil || r.Bytes != 4<<20 {
				t.Errorf("the new owner copied %d bytes, %v", r.Bytes, err)
			}
			remove(t, to) // as the reader of the file may
			return nil    // an answer that came before the take-over
		}
		wantFault(t, old, move.AtSink, move.ErrSuperseded)
		to.wantNames(t, 0)
	})

	t.Run("EndsWhenTheCheckpointCannotBeSaved", func(t *testing.T) {
		t.Parallel()
		from, to, fenced := newFile(t), newFile(t), errors.New("fenced")
		from.write(t, content(1<<20))
		j := job(from.source(), to.sink())
		j.Save, j.SaveEvery = func(context.Context, move.Checkpoint) error { return fenced }, time.Nanosecond
		if _, err := move.Copy(t.Context(), j); !errors.Is(err, fenced) {
			t.Errorf("error is %v", err)
		}
		to.wantNames(t, 0)
	})

	t.Run("SavesNoOftenerThanItIsTold", func(t *testing.T) {
		t.Parallel()
		from, to := newFile(t), newFile(t)
		from.write(t, content(8<<20))
		var c checkpoints
		j := job(from.source(), to.sink())
		j.Save, j.SaveEvery = c.save, time.Hour
		mustCopy(t, j, content(8<<20))
		if len(c.saved) != 1 || c.last(t).Landing == nil {
			t.Errorf("saved %d times, want once, right before the commit", len(c.saved))
		}
	})
}
