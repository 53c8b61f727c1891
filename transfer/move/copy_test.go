//go:build unix

package move_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
	"github.com/probate-dev/probate/transfer/move/s3test"
)

func TestCopy(t *testing.T) {
	t.Parallel()

	t.Run("RefusesAJobThatMakesNoSense", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		f.write(t, nil)
		for name, spoil := range map[string]func(*move.Job){
			"no source":       func(j *move.Job) { j.Source = nil },
			"no sink":         func(j *move.Job) { j.Sink = nil },
			"no flow":         func(j *move.Job) { j.Flow = "" },
			"no epoch":        func(j *move.Job) { j.Epoch = 0 },
			"negative length": func(j *move.Job) { j.Length = new(int64(-1)) },
			"short digest":    func(j *move.Job) { j.SHA256 = []byte{1} },
			"negative limit":  func(j *move.Job) { j.MaxBytes = -1 },
			"negative stall":  func(j *move.Job) { j.StallTimeout = -1 },
		} {
			j := job(f.source(), newFile(t).sink())
			spoil(&j)
			if _, err := move.Copy(t.Context(), j); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
	})

	t.Run("ChecksWhatWasDeclared", func(t *testing.T) {
		t.Parallel()
		want := content(1 << 20)
		sum, other := sha256.Sum256(want), sha256.Sum256(nil)
		chunked := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(want)
		})
		measured := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1048576")
			_, _ = w.Write(want)
		})
		for _, c := range []struct {
			name string
			set  func(*move.Job)
			kind error
		}{
			{"all of it", func(j *move.Job) { j.Length, j.SHA256, j.MaxBytes = new(int64(1<<20)), sum[:], 1<<20 }, nil},
			{"a shorter length", func(j *move.Job) { j.Length = new(int64(1<<20 - 1)) }, move.ErrLength},
			{"a longer length", func(j *move.Job) { j.Length = new(int64(1<<20 + 1)) }, move.ErrLength},
			{"no bytes", func(j *move.Job) { j.Length = new(int64(0)) }, move.ErrLength},
			{"another digest", func(j *move.Job) { j.SHA256 = other[:] }, move.ErrDigest},
			{"a limit below", func(j *move.Job) { j.MaxBytes = 1<<20 - 1 }, move.ErrTooLarge},
		} {
			for _, url := range []string{chunked.URL, measured.URL} {
				to := newFile(t)
				j := job(move.HTTPSource{URL: url, Transport: transport(t)}, to.sink())
				j.Keep = func(error) bool { return true } // what is wrong cannot be resumed
				c.set(&j)
				if c.kind == nil {
					mustCopy(t, j, want)
					continue
				}
				t.Log(c.name)
				wantFault(t, j, move.AtSource, c.kind)
				to.wantNames(t, 0)
			}
		}
	})

	t.Run("EndsAnEndlessSourceAtItsLimit", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(pattern); err != nil {
					return
				}
			}
		})
		to := newFile(t)
		j := job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink())
		j.MaxBytes = 20 << 20
		if r := wantFault(t, j, move.AtSource, move.ErrTooLarge); r.Bytes > j.MaxBytes {
			t.Errorf("%d bytes were written", r.Bytes)
		}
		to.wantNames(t, 0)
	})

	t.Run("SaysThatTheSourceStalls", func(t *testing.T) {
		t.Parallel()
		for _, before := range []int{0, 100 << 10} {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if before > 0 {
					_, _ = w.Write(content(before))
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			to := newFile(t)
			j := job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink())
			j.StallTimeout = 50 * time.Millisecond
			if r := wantFault(t, j, move.AtSource, move.ErrStalled); r.Retries < 2 {
				t.Errorf("%d retries", r.Retries)
			}
			to.wantNames(t, 0)
		}
	})

	t.Run("SaysThatTheSinkStalls", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, content(32<<20))
		s := serveAndHang(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
		})
		j := job(from.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)})
		j.StallTimeout = 100 * time.Millisecond
		wantFault(t, j, move.AtSink, move.ErrStalled)
	})

	t.Run("SaysThatTheCommitIsNotAnswered", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, content(10))
		s := serveAndHang(t, func(_ http.ResponseWriter, r *http.Request) { _ = receive(r) })
		j := job(from.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)})
		j.CommitTimeout = 50 * time.Millisecond
		wantFault(t, j, move.AtSink, move.ErrStalled)
		j.Sink = move.HTTPSink{URL: s.URL, Method: http.MethodPost, Transport: transport(t)}
		wantFault(t, j, move.AtSink, move.ErrUncertain)
	})

	t.Run("TellsSlowFromStalled", func(t *testing.T) {
		t.Parallel()
		want := content(40)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := range want {
				<-tick.C
				_, _ = w.Write(want[i : i+1])
				_ = http.NewResponseController(w).Flush()
			}
		})
		to := newFile(t)
		j := job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink())
		j.StallTimeout = 500 * time.Millisecond // less than all of it takes
		if r := mustCopy(t, j, want); r.Retries != 0 {
			t.Errorf("%d retries", r.Retries)
		}
	})

	t.Run("StopsWhenItIsCancelled", func(t *testing.T) {
		t.Parallel()
		enough := errors.New("enough")
		for _, c := range []string{"source blocks", "sink blocks", "pause"} {
			s := serveAndHang(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = w.Write(content(100 << 10))
					_ = http.NewResponseController(w).Flush()
				}
			})
			to, big := newFile(t), newFile(t)
			big.write(t, content(32<<20))
			ctx, cancel := context.WithCancelCause(t.Context())
			j := job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink())
			switch c {
			case "sink blocks":
				j = job(big.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)})
			case "pause":
				down := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
				j.Source = move.HTTPSource{URL: down.URL, Transport: transport(t)}
				j.Retry = move.Retry{Attempts: 100, Initial: time.Hour, Max: time.Hour}
			}
			stop := time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
			_, err := move.Copy(ctx, j) // hangs, if it does not stop
			stop.Stop()
			if !errors.Is(err, enough) {
				t.Errorf("%s: error is %v", c, err)
			}
			to.wantNames(t, 0)
		}
	})

	t.Run("AsksRightBeforeTheCommit", func(t *testing.T) {
		t.Parallel()
		from, to, fenced := newFile(t), newFile(t), errors.New("fenced")
		from.write(t, content(1<<20))
		j := job(from.source(), to.sink())
		j.BeforeCommit = func(context.Context) error { return fenced }
		if _, err := move.Copy(t.Context(), j); !errors.Is(err, fenced) {
			t.Errorf("error is %v", err)
		}
		to.wantNames(t, 0)
	})

	t.Run("ReportsProgressUpToTheEnd", func(t *testing.T) {
		t.Parallel()
		from, to := newFile(t), newFile(t)
		from.write(t, content(3<<20))
		j := job(from.source(), to.sink())
		var last int64
		j.Progress = func(n int64) {
			if n <= last {
				t.Errorf("progress fell from %d to %d", last, n)
			}
			last = n
		}
		mustCopy(t, j, content(3<<20))
		if last != 3<<20 {
			t.Errorf("progress ended at %d", last)
		}
	})
}

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
		f.sent.Store(0)
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
		if r.ResumedFrom != p.Offset || p.Offset < 2<<20 || f.sent.Load() != 4<<20-p.Offset {
			t.Errorf("resumed from %d of %d, the source sent %d", r.ResumedFrom, p.Offset, f.sent.Load())
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
		f.sent.Store(0)
		r := mustCopy(t, later(job(src, to.sink()), c.last(t)), f.want)
		to.wantContent(t, f.want)
		if r.ResumedFrom != 4<<20 || f.sent.Load() > 1000 { // some words about a range
			t.Errorf("resumed from %d, the source sent %d", r.ResumedFrom, f.sent.Load())
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
		if len(c.saved) != 0 {
			t.Errorf("saved %d times", len(c.saved))
		}
	})
}

// TestCase holds the cases of the project's list that are about bytes.
func TestCase(t *testing.T) {
	t.Parallel()

	t.Run("F13_SourceDiesMidBody", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 1<<20, 1000), newFile(t)
		f.plain = true
		s := serve(t, f.ServeHTTP)
		wantFault(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), move.AtSource, move.ErrUnavailable)
		to.wantNames(t, 0)

		var whole atomic.Int32
		var ended atomic.Int32
		receiver := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			if receive(r).err == nil {
				whole.Add(1)
			}
			ended.Add(1)
		})
		wantFault(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, move.HTTPSink{URL: receiver.URL, Transport: transport(t)}), move.AtSource, move.ErrUnavailable)
		await(t, "the receiver has seen every request break", func() bool { return ended.Load() == 3 })
		if whole.Load() != 0 {
			t.Error("the receiver took a part for the whole")
		}
	})

	// The copies run in a process of their own, whose peak is measured.
	t.Run("F15_MemoryDoesNotGrowWithTheBytes", func(t *testing.T) {
		t.Parallel()
		const limit = memoryFactor * 64 << 20
		b := s3test.Start(t)
		access := s3Access{b.URL, b.AccessKey, b.SecretKey}
		for name, c := range map[string]struct {
			length int64
			flows  int
			order  order
		}{
			"one to a file":    {500 << 20, 1, order{Root: t.TempDir()}},
			"ten to files":     {50 << 20, 10, order{Root: t.TempDir()}},
			"one to an object": {500 << 20, 1, order{Key: "one", Bucket: b.Bucket, S3: access}},
			"ten to objects":   {50 << 20, 10, order{Key: "ten", Bucket: b.Bucket, S3: access}},
		} {
			o := c.order
			server := startChild(t, "serve", order{Length: c.length})
			for range c.flows {
				o.URLs = append(o.URLs, server.URL)
			}
			h := sha256.New()
			_, _ = io.Copy(h, &patternReader{left: c.length})
			a := startChild(t, "copy", o)
			want := fmt.Sprintf("%x", h.Sum(nil))
			if len(a.Faults) > 0 || slices.ContainsFunc(a.SHA256s, func(s string) bool { return s != want }) {
				t.Fatalf("%s: faults %q, SHA-256 %q, want %q", name, a.Faults, a.SHA256s, want)
			}
			t.Logf("%s: grew by %d MiB", name, a.RSS>>20)
			if a.RSS > limit {
				t.Errorf("%s: grew by %d MiB", name, a.RSS>>20)
			}
		}
	})
}
