//go:build unix

package move_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
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
