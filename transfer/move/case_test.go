//go:build unix

package move_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
	"github.com/probate-dev/probate/transfer/move/s3test"
)

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
