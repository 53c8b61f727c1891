//go:build linux || darwin

package sqlite_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// share is how many requests every process of TestThreeWriters must get done
// while the others write without a pause.
const share = 1000

// TestThreeWriters: three processes write all the time, and none starves.
func TestThreeWriters(t *testing.T) {
	path := newPath(t)
	open(t, sqlite.Config{Path: path})
	writers := make([]*child, 3)
	for i := range writers {
		writers[i] = start(t, "write", path)
	}
	for _, w := range writers {
		w.tell()
	}
	// One that starves would never get its share done, as the others go on.
	for _, w := range writers {
		if got := w.line(); got != "share done" {
			t.Fatalf("child said %q", got)
		}
	}
	for _, w := range writers {
		w.tell()
	}
	for i, w := range writers {
		var sum tally
		if err := json.Unmarshal([]byte(w.line()), &sum); err != nil {
			t.Fatal(err)
		}
		w.wait()
		others, took := slices.Max(sum.Others), quantile(sum.Took, 0.999)
		t.Logf("writer %d: %d requests in %d turns; others' turns before an own: median %d, most %d; request: median %s, p99.9 %s, longest %s",
			i, sum.Requests, len(sum.Others), quantile(sum.Others, 0.5), others,
			quantile(sum.Took, 0.5), took, slices.Max(sum.Took))
		if limit := int64(len(writers)); others > limit {
			t.Errorf("writer %d: a turn of its came after %d turns of others, want at most %d", i, others, limit)
		}
		if took > time.Second {
			t.Errorf("writer %d: p99.9 of its requests took %s, want under a second", i, took)
		}
	}
}

// TestStartTogether: processes that start on a missing file migrate it once.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	nodes := make([]*child, 4)
	for i := range nodes {
		nodes[i] = start(t, "open", path)
	}
	for _, n := range nodes {
		n.tell()
	}
	migrated := 0
	for _, n := range nodes {
		n.wait()
		migrated += strings.Count(n.err.String(), "migrating store")
	}
	if migrated != 1 {
		t.Errorf("%d processes migrated, want 1", migrated)
	}
	s := open(t, sqlite.Config{Path: path})
	if all, err := s.ListExecutors(t.Context()); err != nil || len(all) != len(nodes) {
		t.Errorf("%d executors registered, %v; want %d", len(all), err, len(nodes))
	}
}

func TestKilledWriter(t *testing.T) {
	t.Parallel()

	t.Run("LosesNothingAcknowledged", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		var acked []string
		for round := range 4 {
			w := start(t, "acks", path)
			w.tell()
			for range 1 + 37*round {
				acked = append(acked, w.line())
			}
			acked = append(acked, w.kill()...)
		}
		s := open(t, sqlite.Config{Path: path})
		for _, line := range acked {
			mustBeFinalized(t, s, line)
		}
	})

	t.Run("InTheMiddleOfATransactionBlocksNobody", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		s := open(t, sqlite.Config{Path: path})
		a := register(t, s, records.Registration{})
		w := start(t, "midway", path)
		w.tell()
		acked := w.line()
		if got := w.line(); got != "midway" {
			t.Fatalf("child said %q", got)
		}
		w.kill()
		r := reserve(t, s, a.ID)
		if _, err := s.Load(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
		mustBeFinalized(t, s, acked)
		if f, err := s.Fleet(t.Context()); err != nil || f.Cluster != "test" {
			t.Errorf("fleet = %+v, %v; want nothing of what the killed process had begun", f, err)
		}
	})
}

func mustBeFinalized(t *testing.T, s *sqlite.Store, line string) {
	t.Helper()
	id, err := records.ParseID(line)
	if err != nil {
		return // the last line, cut by the kill
	}
	if held, err := s.Load(t.Context(), id); err != nil || held.Record.State != records.Finalized {
		t.Errorf("record %s was acknowledged and is %q, %v", line, held.Record.State, err)
	}
}

// TestStoppedProcess: one that is stopped while it waits for its turn, as a
// debugger or a paused container does it, does not keep the turn from others.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, other := open(t, sqlite.Config{Path: path}), open(t, sqlite.Config{Path: path})
	a := register(t, s, records.Registration{})
	w := start(t, "waiting", path)
	w.tell()
	w.line()

	leave := occupy(t, other)
	w.tell()
	await(t, func() bool { return sqlite.SomebodyWaits(other) })
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	close(leave)
	for range 5 {
		reserve(t, s, a.ID)
	}
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := w.line(); got != "written" {
		t.Errorf("child said %q after it went on", got)
	}
	w.wait()
	if _, err := s.Heartbeat(t.Context(), records.ExecutorID{1}); !errors.Is(err, records.ErrNotActive) {
		t.Errorf("heartbeat = %v, want ErrNotActive", err)
	}
}
