//go:build unix

package move_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
)

func TestS3Sink(t *testing.T) {
	t.Parallel()

	t.Run("LeavesNoUploadWhenItFails", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		from, want := newFile(t), content(12<<20)
		from.write(t, want)
		fenced := errors.New("fenced")
		for _, src := range []move.Source{from.source(), chunked(t, want)} {
			j := job(src, b.sink("x"))
			j.SHA256 = make([]byte, 32)
			wantFault(t, j, move.AtSource, move.ErrDigest)
			b.wantNothing(t)

			j = job(src, b.sink("x"))
			j.BeforeCommit = func(context.Context) error { return fenced }
			if _, err := move.Copy(t.Context(), j); !errors.Is(err, fenced) {
				t.Errorf("error is %v", err)
			}
			b.wantNothing(t)

			ctx, cancel := context.WithCancelCause(t.Context())
			j = job(src, b.sink("x"))
			j.Progress = func(n int64) {
				if n > 7<<20 {
					cancel(fenced)
				}
			}
			if _, err := move.Copy(ctx, j); !errors.Is(err, fenced) {
				t.Errorf("error is %v", err)
			}
			b.wantNothing(t)
		}
	})

	t.Run("LeavesNoUploadThatItHasOnlyAskedFor", func(t *testing.T) {
		t.Parallel()
		terminated := errors.New("terminated")
		for name, saving := range map[string]func(context.Context, move.Checkpoint) error{
			"nobody saves": nil,
			"saved":        func(ctx context.Context, _ move.Checkpoint) error { return context.Cause(ctx) },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			b := newBucket(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(r)
					if err == nil && r.Method == http.MethodPost && r.URL.Query().Has("uploads") {
						cancel(terminated)
						if r.Context().Err() != nil { // nobody waits for the answer
							resp.Body.Close()
							return nil, context.Cause(r.Context())
						}
					}
					return resp, err
				})
			})
			from := newFile(t)
			from.write(t, content(6<<20))
			j := job(from.source(), b.sink("x"))
			j.Save = saving
			if _, err := move.Copy(ctx, j); !errors.Is(err, terminated) {
				t.Errorf("%s: error is %v", name, err)
			}
			b.wantNothing(t)
		}
	})

	t.Run("GoesOnFromItsLastPart", func(t *testing.T) {
		t.Parallel()
		r := &refuser{part: "2"}
		b := newBucket(t, r.around)
		f := newFlaky(12<<20, 0, 0)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		r.left.Store(1)
		if got := mustCopy(t, job(src, b.sink("x")), f.want); got.Retries != 1 {
			t.Errorf("%d retries, want 1", got.Retries)
		}
		b.wantObject(t, "x", f.want)
		b.wantNoUpload(t)
		if f.ranges.Load() != 1 || r.seen.Load() != 4 { // 1, 2 refused, 2, 3
			t.Errorf("%d ranges and %d parts", f.ranges.Load(), r.seen.Load())
		}
	})

	t.Run("KnowsItsOwnCommitWhenTheAnswerIsLost", func(t *testing.T) {
		t.Parallel()
		r := &refuser{commit: true}
		b := newBucket(t, r.around)
		from := newFile(t)
		from.write(t, content(6<<20))
		r.left.Store(s3Tries)
		if got := mustCopy(t, job(from.source(), b.sink("x")), content(6<<20)); got.Retries != 0 {
			t.Errorf("%d retries", got.Retries)
		}
		b.wantObject(t, "x", content(6<<20))
		b.wantNoUpload(t)
	})

	t.Run("KnowsItsOwnCommitWhenItIsCancelledMeanwhile", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		b := newBucket(t, func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil && r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
					resp.Body.Close()
					cancel(errors.New("suspended"))
					return nil, context.Cause(r.Context())
				}
				return resp, err
			})
		})
		from := newFile(t)
		from.write(t, content(6<<20))
		if _, err := move.Copy(ctx, job(from.source(), b.sink("x"))); err != nil {
			t.Errorf("error is %v", err)
		}
		b.wantObject(t, "x", content(6<<20))
		b.wantNoUpload(t)
	})

	t.Run("SavesItsUploadBeforeTheFirstByte", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		from := newFile(t)
		from.write(t, content(6<<20))
		fenced := errors.New("fenced")
		j := job(from.source(), b.sink("x"))
		j.Progress = func(int64) { t.Error("bytes moved") }
		j.Save = func(_ context.Context, p move.Checkpoint) error {
			if p.Token == "" || p.Offset != 0 || len(b.Leftovers(t)) == 0 {
				t.Errorf("first checkpoint is %+v", p)
			}
			return fenced
		}
		if _, err := move.Copy(t.Context(), j); !errors.Is(err, fenced) {
			t.Errorf("error is %v", err)
		}
		b.wantNothing(t)
	})

	t.Run("TakesAwayWhatAKilledOwnerLeft", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		begin := func(t *testing.T) move.Mark {
			t.Helper()
			p, err := b.sink("x").Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "flow", Epoch: 9}, Length: 6 << 20})
			if err != nil {
				t.Fatal(err)
			}
			m, err := p.Checkpoint()
			if err := errors.Join(err, p.Keep()); err != nil {
				t.Fatal(err)
			}
			if len(b.Leftovers(t)) == 0 {
				t.Fatal("there is no upload")
			}
			return m
		}
		from, want := newFile(t), content(6<<20)
		from.write(t, want)

		j := job(from.source(), b.sink("x"))
		j.Resume = &move.Checkpoint{Token: begin(t).Token, Length: -1}
		mustCopy(t, j, want)
		b.wantNoUpload(t)

		m := begin(t)
		if err := b.sink("x").Discard(t.Context(), j.Identity, m.Token); err != nil {
			t.Error(err)
		}
		b.wantNoUpload(t)

		// Killed before it could save: only one who owns the key may clean up.
		begin(t)
		sink := b.sink("x")
		sink.Exclusive = true
		mustCopy(t, job(from.source(), sink), want)
		b.wantNoUpload(t)

		// And an older epoch does not take away a newer one's.
		j.Epoch, j.Resume = 8, &move.Checkpoint{Token: begin(t).Token, Length: -1}
		wantFault(t, j, move.AtSink, move.ErrSuperseded)
		if len(b.Leftovers(t)) == 0 {
			t.Error("the newer epoch's upload is gone")
		}
	})

	t.Run("GoesOnAtALaterEpochAndFencesTheOlder", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		f := newFlaky(17<<20, 0, 0)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		old := job(src, b.sink("x"))
		old.Save, old.SaveEvery = c.save, time.Nanosecond
		old.Keep = func(error) bool { return true } // it may be the successor's
		// The old owner has sent every byte and had its answer from the store
		// when the new one begins; then it wakes up and commits.
		next := move.Identity{Flow: old.Flow, Epoch: old.Epoch + 1}
		old.BeforeCommit = func(ctx context.Context) error {
			p, err := b.sink("x").Begin(ctx, move.Start{Identity: next, Length: 17 << 20, Resume: &c.saved[2]})
			if err != nil {
				return err
			}
			if p.Offset() != 10<<20 {
				t.Errorf("the successor begins at %d", p.Offset())
			}
			return p.Keep()
		}
		wantFault(t, old, move.AtSink, move.ErrSuperseded)
		if _, err := os.Stat(b.Path("x")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the old owner has committed: %v", err)
		}
		f.total(t)
		j := job(src, b.sink("x"))
		j.Identity, j.Resume = next, &c.saved[2]
		r := mustCopy(t, j, f.want)
		if sent := f.total(t); r.ResumedFrom != 10<<20 || sent != 7<<20 {
			t.Errorf("resumed from %d, the source sent %d", r.ResumedFrom, sent)
		}
		b.wantObject(t, "x", f.want)
		b.wantNoUpload(t)
	})

	t.Run("GoesOnAfterASuspension", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		f := newFlaky(17<<20, 0, 0)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		ctx, cancel := context.WithCancel(t.Context())
		j := job(src, b.sink("x"))
		j.Save, j.SaveEvery = c.save, time.Hour
		j.Keep = func(error) bool { return true }
		j.Progress = func(n int64) {
			if n >= 12<<20 {
				cancel()
			}
		}
		if _, err := move.Copy(ctx, j); !errors.Is(err, context.Canceled) {
			t.Fatalf("error is %v", err)
		}
		if len(c.saved) != 2 { // the upload, and where it stopped
			t.Errorf("saved %d times", len(c.saved))
		}
		j.Epoch, j.Resume, j.Progress = j.Epoch+1, c.last(t), nil
		if r := mustCopy(t, j, f.want); r.ResumedFrom != 10<<20 {
			t.Errorf("resumed from %d", r.ResumedFrom)
		}
		b.wantObject(t, "x", f.want)
		b.wantNoUpload(t)
	})

	t.Run("BeginsAgainWhenTheOlderOwnerEndedTheUpload", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		f := newFlaky(17<<20, 0, 0)
		src := move.HTTPSource{URL: serve(t, f.ServeHTTP).URL, Transport: transport(t)}
		var c checkpoints
		old := job(src, b.sink("x"))
		old.Save, old.SaveEvery = c.save, time.Nanosecond
		old.BeforeCommit = func(context.Context) error { return errors.New("dies") }
		old.Keep = func(error) bool { return true }
		if _, err := move.Copy(t.Context(), old); err == nil {
			t.Fatal("committed")
		}
		j := job(src, b.sink("x"))
		j.Epoch++
		j.Resume = &c.saved[2]
		once := false
		j.Progress = func(n int64) {
			if n > 13<<20 && !once {
				once = true
				if err := b.sink("x").Discard(t.Context(), old.Identity, c.saved[2].Token); err != nil {
					t.Error(err)
				}
			}
		}
		if r := mustCopy(t, j, f.want); r.Retries == 0 {
			t.Error("nothing was retried")
		}
		b.wantObject(t, "x", f.want)
		b.wantNoUpload(t)
	})
}

// refuser fails requests: those of a part, or the commit after it was done.
type refuser struct {
	part   string
	commit bool
	left   atomic.Int32
	seen   atomic.Int32
	next   http.RoundTripper
}

func (r *refuser) around(next http.RoundTripper) http.RoundTripper { r.next = next; return r }

func (r *refuser) RoundTrip(q *http.Request) (*http.Response, error) {
	number := q.URL.Query().Get("partNumber")
	if number != "" {
		r.seen.Add(1)
	}
	isCommit := q.Method == http.MethodPost && q.URL.Query().Has("uploadId")
	switch {
	case r.part != "" && number == r.part && r.left.Add(-1) >= 0:
		_, _ = io.CopyN(io.Discard, q.Body, 1<<20)
		q.Body.Close()
		return nil, errors.New("connection lost")
	case r.commit && isCommit && r.left.Add(-1) >= 0:
		p, err := r.next.RoundTrip(q)
		if err == nil {
			p.Body.Close()
		}
		return nil, errors.New("answer lost")
	default:
		return r.next.RoundTrip(q)
	}
}

// s3Tries is how often the client repeats a request from memory.
const s3Tries = 3
