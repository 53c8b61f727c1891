package main

import (
	"strings"
	"testing"
	"time"
)

// The demo as a whole is run by the tests of the built program.
func TestDemo(t *testing.T) {
	t.Parallel()
	t.Run("FailsIfAClaimDidNotHold", func(t *testing.T) {
		t.Parallel()
		r := demoReport{Claims: []demoClaim{{Claim: "water is wet", Held: true}}}
		if err := r.verdict(); err != nil {
			t.Errorf("all held: %v", err)
		}
		r.Claims = append(r.Claims, demoClaim{Claim: "fire is cold", Saw: "hot"})
		if err := r.verdict(); err == nil || !strings.Contains(err.Error(), "fire is cold") || exitCode(err) != exitFailed {
			t.Errorf("one did not hold: %v", err)
		}
		var b strings.Builder
		r.write(&env{}, &text{w: &b})
		if !strings.Contains(b.String(), "BROKE fire is cold: hot") || strings.Contains(b.String(), "Applied exactly once.") {
			t.Errorf("written:\n%s", b.String())
		}
	})
	t.Run("ShowsEventsInTheOrderOfTheirTimes", func(t *testing.T) {
		t.Parallel()
		var b strings.Builder
		now := time.Now()
		s := script{begun: now, live: &text{w: &b}}
		s.tell(now.Add(2*time.Second), "late", "second")
		s.tell(now.Add(time.Second), "early", "first")
		s.flush()
		s.tell(now.Add(3*time.Second), "last", "third")
		s.flush()
		first, second, third := strings.Index(b.String(), "first"), strings.Index(b.String(), "second"), strings.Index(b.String(), "third")
		if first < 0 || second < first || third < second || strings.Count(b.String(), "\n") != 3 {
			t.Errorf("shown:\n%s", b.String())
		}
	})
	t.Run("RefusesAnotherStoreThanPostgreSQL", func(t *testing.T) {
		t.Parallel()
		if r := invoke(t, nil, "demo", "--store", "sqlite:x.db"); r.code != exitUsage {
			t.Errorf("exit code %d\n%s", r.code, r.err)
		}
	})
}
