//go:build unix

package move_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

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
