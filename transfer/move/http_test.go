//go:build unix

package move_test

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// modified is when the sources of these tests were last written to.
var modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// flaky serves want, and breaks the connection after some bytes of each answer
// as long as there are breaks left.
type flaky struct {
	want   []byte
	after  int
	breaks atomic.Int32
	etag   atomic.Pointer[string]
	plain  bool // knows no ranges
	asked  atomic.Int32
	ranges atomic.Int32
	sent   atomic.Int64
	busy   atomic.Int32 // requests that are being answered
}

// total is what was sent since it was last asked for, once nobody is sent
// anything any more.
func (f *flaky) total(t testing.TB) int64 {
	t.Helper()
	await(t, "the source has noticed that nobody reads it", func() bool { return f.busy.Load() == 0 })
	return f.sent.Swap(0)
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.busy.Add(1)
	defer f.busy.Add(-1)
	f.asked.Add(1)
	if r.Header.Get("Range") != "" {
		f.ranges.Add(1)
	}
	if e := f.etag.Load(); e != nil {
		w.Header().Set("ETag", *e)
	}
	if f.plain {
		r.Header.Del("Range")
	}
	left := -1
	if f.breaks.Add(-1) >= 0 {
		left = f.after
	}
	http.ServeContent(&breaking{ResponseWriter: w, left: left, sent: &f.sent}, r, "", time.Time{}, bytes.NewReader(f.want))
}

// breaking is a connection that breaks when left bytes were sent.
type breaking struct {
	http.ResponseWriter

	left int
	sent *atomic.Int64
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left >= 0 && len(p) >= b.left {
		n, _ := b.ResponseWriter.Write(p[:b.left])
		b.sent.Add(int64(n))
		_ = http.NewResponseController(b.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	if b.left >= 0 {
		b.left -= len(p)
	}
	n, err := b.ResponseWriter.Write(p)
	b.sent.Add(int64(n))
	return n, err
}

func newFlaky(n, after, breaks int) *flaky {
	f := &flaky{want: content(n), after: after}
	f.breaks.Store(int32(breaks))
	f.etag.Store(new(`"one"`))
	return f
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
