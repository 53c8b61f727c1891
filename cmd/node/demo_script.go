package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// demoReport is what a demo has shown.
type demoReport struct {
	Store      string      `json:"store"`
	Nodes      []demoNode  `json:"nodes"`
	Events     []demoEvent `json:"events"`
	Claims     []demoClaim `json:"claims"`
	TakeoverMS int64       `json:"takeover_ms"` // from the kill to the later of both answers, or to that of the repeated start
	Ledger     []string    `json:"ledger,omitempty"`
	Copy       *demoCopy   `json:"copy,omitempty"`
}

type demoNode struct {
	Name string `json:"name"`
	Pid  int    `json:"pid"`
}

type demoEvent struct {
	MS   float64 `json:"ms"` // since the demo began
	Who  string  `json:"who"`
	What string  `json:"what"`
}

type demoClaim struct {
	Claim string `json:"claim"`
	Held  bool   `json:"held"`
	Saw   string `json:"saw,omitempty"`
}

// verdict is an error if a claim did not hold.
func (r demoReport) verdict() error {
	var broken []string
	for _, c := range r.Claims {
		if !c.Held {
			broken = append(broken, c.Claim)
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d of %d claims did not hold: %s", len(broken), len(r.Claims), strings.Join(broken, "; "))
	}
	return nil
}

// write is the end of the demo, for a person; what happened was shown as it
// did.
func (r demoReport) write(e *env, w *text) {
	about, lines, until, proven := "The ledger", r.Ledger, "the answers of both clients", "Applied exactly once."
	if r.Copy != nil {
		about, lines, until, proven = "The copy", r.Copy.lines(), "the answer of the repeated start", "Moved whole, once."
	}
	w.printf("\n%s\n", e.paint(bold, about))
	for _, line := range lines {
		w.printf("  %s\n", line)
	}
	w.printf("\n%s\n", e.paint(bold, "What was claimed"))
	for _, c := range r.Claims {
		switch {
		case c.Held:
			w.printf("  %s  %s\n", e.paint(green, "held"), c.Claim)
		case c.Saw == "":
			w.printf("  %s %s\n", e.paint(red, "BROKE"), c.Claim)
		default:
			w.printf("  %s %s: %s\n", e.paint(red, "BROKE"), c.Claim, c.Saw)
		}
	}
	w.printf("\nFrom the kill to %s: %d ms.\n", until, r.TakeoverMS)
	if r.verdict() == nil {
		w.printf("%s\n", e.paint(green, proven))
	}
}

// script is the timeline. Events are told by several goroutines, and shown in
// the order of their times.
type script struct {
	begun time.Time
	live  *text // nil: nobody watches

	mu     sync.Mutex
	events []demoEvent
	shown  int
	killAt time.Duration
}

// say tells what happened now.
func (s *script) say(who, format string, args ...any) { s.tell(time.Now(), who, format, args...) }

// tell tells what happened at a time.
func (s *script) tell(at time.Time, who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, demoEvent{MS: float64(at.Sub(s.begun).Microseconds()) / 1000, Who: who, What: fmt.Sprintf(format, args...)})
}

// markKill notes the moment from which the take-over is counted.
func (s *script) markKill() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.killAt = now.Sub(s.begun)
	return now
}

func (s *script) killed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killAt
}

// news reports whether something was told since flush.
func (s *script) news() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown < len(s.events)
}

// flush shows what was told since the last time.
func (s *script) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.events[s.shown:]
	slices.SortStableFunc(fresh, func(a, b demoEvent) int { return int((a.MS - b.MS) * 1000) })
	s.shown = len(s.events)
	if s.live == nil {
		return
	}
	for _, e := range fresh {
		since := ""
		if kill := float64(s.killAt.Microseconds()) / 1000; s.killAt > 0 && e.MS >= kill {
			since = fmt.Sprintf("+%.0f ms", e.MS-kill)
		}
		s.live.printf("%8.3f s %9s  %-9s %s\n", e.MS/1000, since, e.Who, e.What)
	}
}

// claim notes whether something is as it was claimed to be.
func (s *story) claim(what string, held bool, saw string) {
	s.report.Claims = append(s.report.Claims, demoClaim{Claim: what, Held: held, Saw: saw})
}
