//go:build unix

package tests_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// flowStory is what the demo of a data flow tells, in this order.
var flowStory = []string{
	"is answered STARTING by node-",
	"the record says: in progress",
	"is answered STARTED by node-",
	"do you run it? running, signed",
	"killed (SIGKILL",
	"are safe with a checkpoint",
	"fences node-",
	"takes the record over",
	"is told: completed",
	"is answered COMPLETED by node-",
	"What was claimed",
	"held  the source was read on from the checkpoint",
	"Moved whole, once.",
}

// TestDataflowDemo runs the demo of a data flow, as it is built, with a file
// that is quickly made.
func TestDataflowDemo(t *testing.T) {
	t.Parallel()
	binary := fleet.Build(t, "../cmd/node")
	t.Run("TellsTheWholeStory", func(t *testing.T) {
		t.Parallel()
		d := startDemo(t, binary, "--dataflow", "--size", "8")
		if err := d.AwaitEnd(t); err != nil {
			t.Error(err)
		}
		rest := d.said()
		for _, line := range flowStory {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Fatalf("it does not say, or not here: %s", line)
			}
			rest = after
		}
		for _, line := range []string{"is asked for the file, from byte 0 on", "is told: started"} { // at about the same time
			if !strings.Contains(d.said(), line) {
				t.Errorf("it does not say: %s", line)
			}
		}
		d.leftNothing(t)
	})
	t.Run("DoesTheSameOnPostgreSQLTwice", func(t *testing.T) {
		t.Parallel()
		store := postgrestest.Shared(t).Empty(t) // it migrates
		for range 2 {
			copyOnPostgres(t, binary, store)
		}
	})
	t.Run("LeavesNothingBehindWhenItIsInterrupted", func(t *testing.T) {
		t.Parallel()
		d := startDemo(t, binary, "--dataflow", "--size", "8")
		fleet.Await(t, "it copies", func() bool { return d.Output.Has("has copied") || d.Ended() })
		d.Term(t)
		if err := d.AwaitEnd(t); err == nil || !d.Output.Has("interrupted") {
			t.Errorf("it ended with %v, want an exit code, and why", err)
		}
		d.leftNothing(t)
	})
}

// copyOnPostgres reads what a demo of a data flow reports as JSON.
func copyOnPostgres(t *testing.T, binary, store string) {
	t.Helper()
	d := startDemo(t, binary, "-o", "json", "--dataflow", "--size", "8", "--store", store)
	ended := d.AwaitEnd(t)
	var report struct {
		Claims []struct {
			Claim, Saw string
			Held       bool
		}
		Copy struct {
			Bytes int64
			Reads []struct{ From, Sent int64 }
		}
	}
	if err := json.Unmarshal([]byte(d.said()), &report); ended != nil || err != nil {
		t.Fatalf("%v, %v", ended, err)
	}
	for _, c := range report.Claims {
		if !c.Held {
			t.Errorf("broke: %s: %s", c.Claim, c.Saw)
		}
	}
	if c := report.Copy; len(report.Claims) < 11 || c.Bytes != 8<<20 || len(c.Reads) != 2 || c.Reads[1].From == 0 || c.Reads[1].From+c.Reads[1].Sent != c.Bytes {
		t.Errorf("%d claims, copy %+v", len(report.Claims), c)
	}
	d.leftNothing(t)
}
