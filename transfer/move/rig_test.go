//go:build unix

package move_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/probate-dev/probate/tests/fleet"
	"github.com/probate-dev/probate/transfer/move"
)

// content is n bytes that do not repeat, the same ones each time.
func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

// transport is one for a test, which leaves no connection behind.
func transport(t testing.TB) *http.Transport {
	t.Helper()
	tr := move.NewTransport(nil)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// serve serves h on a real socket.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// serveAndHang serves h, which then does not return before the test does.
func serveAndHang(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	done := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		<-done
	})
	t.Cleanup(func() { close(done) })
	return s
}

// file is a file below a root of the test, and what stands there.
type file struct{ root, path string }

func newFile(t testing.TB) file {
	t.Helper()
	return file{root: t.TempDir(), path: "out"}
}

func (f file) sink() move.FileSink     { return move.FileSink{Root: f.root, Path: f.path} }
func (f file) source() move.FileSource { return move.FileSource{Root: f.root, Path: f.path} }
func (f file) name() string            { return filepath.Join(f.root, f.path) }

func (f file) write(t testing.TB, b []byte) {
	t.Helper()
	if err := os.WriteFile(f.name(), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f file) wantContent(t testing.TB, want []byte) {
	t.Helper()
	got, err := os.ReadFile(f.name())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the sink has %d bytes that are not the %d of the source", len(got), len(want))
	}
}

// wantNames compares what is in the root, hidden files included.
func (f file) wantNames(t testing.TB, want int) {
	t.Helper()
	var names []string
	err := filepath.WalkDir(f.root, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, e.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != want {
		t.Errorf("the root has %q, want %d files", names, want)
	}
}

// job is a copy at epoch 10 that does not wait long for anything.
func job(src move.Source, sink move.Sink) move.Job {
	return move.Job{
		Identity: move.Identity{Flow: "flow", Epoch: 10},
		Source:   src, Sink: sink,
		Retry: move.Retry{Attempts: 3, Initial: time.Millisecond, Max: 5 * time.Millisecond},
	}
}

func mustCopy(t testing.TB, j move.Job, want []byte) move.Result {
	t.Helper()
	r, err := move.Copy(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != int64(len(want)) || r.SHA256 != sha256.Sum256(want) {
		t.Fatalf("copied %d bytes with SHA-256 %x, want %d with %x", r.Bytes, r.SHA256, len(want), sha256.Sum256(want))
	}
	return r
}

// wantFault copies and expects a fault of a kind, at an end.
func wantFault(t testing.TB, j move.Job, at move.End, kind error) move.Result {
	t.Helper()
	r, err := move.Copy(t.Context(), j)
	if !errors.Is(err, kind) {
		t.Fatalf("error is %v, want %v", err, kind)
	}
	if f, ok := errors.AsType[*move.Fault](err); !ok || f.End != at {
		t.Fatalf("error is %v, want it at the %s", err, at)
	}
	return r
}

// checkpoints collects what a job saves.
type checkpoints struct{ saved []move.Checkpoint }

func (c *checkpoints) save(_ context.Context, p move.Checkpoint) error {
	c.saved = append(c.saved, p)
	return nil
}

func (c *checkpoints) last(t testing.TB) *move.Checkpoint {
	t.Helper()
	if len(c.saved) == 0 {
		t.Fatal("no checkpoint was saved")
	}
	return &c.saved[len(c.saved)-1]
}

// await polls until a condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	fleet.Await(t, what, condition)
}

func remove(t testing.TB, f file) {
	t.Helper()
	if err := os.Remove(f.name()); err != nil {
		t.Fatal(err)
	}
}
