//go:build unix

package tests_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// story is what the demo tells, in this order. What happens at the same time,
// and on which node, differs from run to run.
var story = []string{
	"ledger    booked",
	"the record says: in progress",
	"a duplicate. It waits here",
	"do you run it? running, signed",
	"killed (SIGKILL",
	"fences node-",
	"takes the record over",
	"Says: applied",
	"is answered 201 by node-",
	"(replayed)",
	"is answered 422 by node-",
	"What was claimed",
	"held  the payment was applied exactly once",
	"Applied exactly once.",
}

// TestDemo runs the demo, as it is built.
func TestDemo(t *testing.T) {
	t.Parallel()
	binary := fleet.Build(t, "../cmd/node")
	t.Run("TellsTheWholeStory", func(t *testing.T) {
		t.Parallel()
		d := startDemo(t, binary)
		if err := d.AwaitEnd(t); err != nil {
			t.Error(err)
		}
		rest := d.said()
		for _, line := range story {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Fatalf("it does not say, or not here: %s", line)
			}
			rest = after
		}
		d.leftNothing(t)
	})
	t.Run("DoesTheSameOnPostgreSQLTwice", func(t *testing.T) {
		t.Parallel()
		store := postgrestest.Shared(t).Empty(t) // it migrates
		for range 2 {
			demoOnPostgres(t, binary, store)
		}
	})
	t.Run("LeavesNothingBehindWhenItIsInterrupted", func(t *testing.T) {
		t.Parallel()
		d := startDemo(t, binary)
		fleet.Await(t, "its nodes run", func() bool { return d.Output.Has("node-3") || d.Ended() })
		d.Term(t)
		if err := d.AwaitEnd(t); err == nil || !d.Output.Has("interrupted") {
			t.Errorf("it ended with %v, want an exit code, and why", err)
		}
		d.leftNothing(t)
	})
}

// demoOnPostgres reads what a demo reports as JSON.
func demoOnPostgres(t *testing.T, binary, store string) {
	t.Helper()
	d := startDemo(t, binary, "-o", "json", "--store", store)
	ended := d.AwaitEnd(t)
	var report struct {
		Claims []struct {
			Claim, Saw string
			Held       bool
		}
		Ledger []string
	}
	if err := json.Unmarshal([]byte(d.said()), &report); ended != nil || err != nil {
		t.Fatalf("%v, %v", ended, err)
	}
	for _, c := range report.Claims {
		if !c.Held {
			t.Errorf("broke: %s: %s", c.Claim, c.Saw)
		}
	}
	if len(report.Claims) < 8 || len(report.Ledger) != 1 {
		t.Errorf("%d claims, ledger %q", len(report.Claims), report.Ledger)
	}
	d.leftNothing(t)
}

// demo is a demo that runs, with a folder for whatever it makes.
type demo struct {
	*fleet.Process
	folder string
}

func startDemo(t *testing.T, binary string, args ...string) demo {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"demo"}, args...)...)
	cmd.Dir, cmd.Env = folder, []string{"TMPDIR=" + folder}
	return demo{fleet.Start(t, "demo", cmd), folder}
}

func (d demo) said() string { return d.Output.Tail(1000) }

var pidPattern = regexp.MustCompile(`(?:\(SIGKILL, process|node-\d\s+process|"pid":) (\d+)`)

// leftNothing fails the test if any file is left, or any of the processes that
// the demo has named, at least its three nodes.
func (d demo) leftNothing(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(d.folder)
	if err != nil || len(files) > 0 {
		t.Errorf("left files: %v, %v", files, err)
	}
	pids := map[int]bool{}
	for _, m := range pidPattern.FindAllStringSubmatch(d.said(), -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		pids[pid] = true
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) { // signal 0 only asks
			t.Errorf("left process %d: %v", pid, err)
		}
	}
	if len(pids) < 3 {
		t.Errorf("it named processes %v", pids)
	}
}
