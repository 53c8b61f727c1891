//go:build unix

package move_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
	"github.com/probate-dev/probate/transfer/move/s3test"
)

// bucket is a store of its own, and a key in it.
type bucket struct {
	*s3test.Server

	store *move.S3
}

// newBucket reaches the server through transports wrapped by those of around.
func newBucket(t testing.TB, around ...func(http.RoundTripper) http.RoundTripper) bucket {
	t.Helper()
	s := s3test.Start(t)
	var tr http.RoundTripper = transport(t)
	for _, wrap := range around {
		tr = wrap(tr)
	}
	return bucket{s, open(t, s, tr)}
}

func open(t testing.TB, s *s3test.Server, tr http.RoundTripper) *move.S3 {
	t.Helper()
	store, err := move.NewS3(move.S3Config{Endpoint: s.URL, AccessKey: s.AccessKey, SecretKey: s.SecretKey, Transport: tr})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (b bucket) sink(key string) move.S3Sink {
	return move.S3Sink{Store: b.store, Bucket: b.Bucket, Key: key, PartSize: 5 << 20}
}

func (b bucket) source(key string) move.S3Source {
	return move.S3Source{Store: b.store, Bucket: b.Bucket, Key: key}
}

func (b bucket) wantObject(t testing.TB, key string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(b.Path(key))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the object has %d bytes that are not the %d of the source", len(got), len(want))
	}
}

// wantNothing: no object x, and no upload.
func (b bucket) wantNothing(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(b.Path("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an object: %v", err)
	}
	b.wantNoUpload(t)
}

func (b bucket) wantNoUpload(t testing.TB) {
	t.Helper()
	if left := b.Leftovers(t); len(left) > 0 {
		t.Errorf("uploads are left: %q", left)
	}
}

// chunked serves bytes without saying how many.
func chunked(t testing.TB, want []byte) move.HTTPSource {
	t.Helper()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(want)
	})
	return move.HTTPSource{URL: s.URL, Transport: transport(t)}
}

func TestS3(t *testing.T) {
	t.Parallel()
	b := newBucket(t)

	t.Run("CopiesAnyLengthThereAndBack", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{0, 1, 5 << 20, 12<<20 + 345} {
			from, to, want := newFile(t), newFile(t), content(n)
			from.write(t, want)
			mustCopy(t, job(from.source(), b.sink("known")), want)
			b.wantObject(t, "known", want)
			mustCopy(t, job(chunked(t, want), b.sink("unknown")), want)
			b.wantObject(t, "unknown", want)
			mustCopy(t, job(b.source("known"), to.sink()), want)
			to.wantContent(t, want)
		}
	})

	t.Run("SaysWhatIsNotThereAndWhatIsNotAllowed", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		f.write(t, content(10))
		wantFault(t, job(b.source("none"), newFile(t).sink()), move.AtSource, move.ErrNotFound)
		wantFault(t, job(move.S3Source{Store: b.store, Bucket: "no-bucket", Key: "x"}, newFile(t).sink()), move.AtSource, move.ErrNotFound)
		wantFault(t, job(f.source(), move.S3Sink{Store: b.store, Bucket: "no-bucket", Key: "x"}), move.AtSink, move.ErrNotFound)
		stranger := *b.Server
		stranger.SecretKey = "wrong"
		store := open(t, &stranger, transport(t))
		wantFault(t, job(move.S3Source{Store: store, Bucket: b.Bucket, Key: "x"}, newFile(t).sink()), move.AtSource, move.ErrRefused)
		wantFault(t, job(f.source(), move.S3Sink{Store: store, Bucket: b.Bucket, Key: "x"}), move.AtSink, move.ErrRefused)
	})

	t.Run("RefusesAnEndpointThatIsNone", func(t *testing.T) {
		t.Parallel()
		for _, e := range []string{"", "host:9000", "ftp://host", "http://host/path", "http://user:pw@host"} {
			if _, err := move.NewS3(move.S3Config{Endpoint: e}); err == nil {
				t.Errorf("%q was accepted", e)
			}
		}
	})
}

func TestS3Source(t *testing.T) {
	t.Parallel()

	t.Run("ReadsOnWhereItBroke", func(t *testing.T) {
		t.Parallel()
		cut := &cutter{after: 1 << 20}
		b, to, want := newBucket(t, cut.around), newFile(t), content(4<<20)
		mustCopy(t, job(chunked(t, want), b.sink("x")), want)
		cut.cuts.Store(2)
		if r := mustCopy(t, job(b.source("x"), to.sink()), want); r.Retries != 2 {
			t.Errorf("%d retries, want 2", r.Retries)
		}
		to.wantContent(t, want)
	})

	t.Run("BeginsAgainWhenTheObjectIsReplaced", func(t *testing.T) {
		t.Parallel()
		cut := &cutter{after: 1 << 20}
		b, to, want := newBucket(t, cut.around), newFile(t), content(4<<20)
		mustCopy(t, job(chunked(t, want), b.sink("x")), want)
		cut.cuts.Store(1)
		cut.then = func() {
			want = bytes.Repeat([]byte("other"), 1<<20)
			mustCopy(t, job(chunked(t, want), b.sink("x")), want)
		}
		r, err := move.Copy(t.Context(), job(b.source("x"), to.sink()))
		if err != nil || r.Retries != 1 {
			t.Fatalf("%d retries, %v", r.Retries, err)
		}
		to.wantContent(t, want)
	})
}

// cutter breaks the bodies of answers.
type cutter struct {
	after int64
	cuts  atomic.Int32
	then  func()
	next  http.RoundTripper
}

func (c *cutter) around(next http.RoundTripper) http.RoundTripper { c.next = next; return c }

func (c *cutter) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := c.next.RoundTrip(q)
	if err == nil && q.Method == http.MethodGet && r.ContentLength > c.after && c.cuts.Add(-1) >= 0 {
		r.Body = &cutBody{ReadCloser: r.Body, left: c.after, then: c.then}
	}
	return r, err
}

type cutBody struct {
	io.ReadCloser

	left int64
	then func()
}

func (c *cutBody) Read(b []byte) (int, error) {
	if c.left == 0 {
		if c.then != nil {
			c.then()
		}
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

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
		f.sent.Store(0)
		j := job(src, b.sink("x"))
		j.Identity, j.Resume = next, &c.saved[2]
		if r := mustCopy(t, j, f.want); r.ResumedFrom != 10<<20 || f.sent.Load() != 7<<20 {
			t.Errorf("resumed from %d, the source sent %d", r.ResumedFrom, f.sent.Load())
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
