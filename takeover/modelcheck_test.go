package takeover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestModel tries every order of events in small worlds, see
// model_state_test.go. Without a flaw all properties must hold; every flaw
// must be found out. All of it together must be more than 100,000 moments.
func TestModel(t *testing.T) {
	states := 0
	var all taken
	for _, s := range settings {
		t.Run("Holds/"+s.name, func(t *testing.T) {
			m := &model{setting: s, taken: &all}
			x := m.explore(properties)
			states += len(x.moments)
			t.Logf("%d states", len(x.moments))
			if x.falls != nil {
				t.Errorf("%s %s:\n%s", x.falls.id, x.falls.says, x.trace(m))
			}
		})
	}
	for _, b := range brokens {
		t.Run("Falls/"+b.name, func(t *testing.T) {
			m := &model{setting: b.setting, flaw: b.flaw, taken: &taken{}}
			p := propertyOf(t, b.falls)
			x := m.explore([]property{p})
			switch {
			case !p.promised(m):
				t.Fatalf("%s is not promised in this setting", p.id)
			case x.falls == nil:
				t.Fatalf("%d states, and none breaks %s: %s", len(x.moments), p.id, p.says)
			}
			t.Logf("%d states; breaks %s: %s\n%s", len(x.moments), p.id, p.says, x.trace(m))
		})
	}
	if t.Failed() {
		return
	}
	t.Logf("%d states in %d settings", states, len(settings))
	if states <= 100_000 {
		t.Errorf("only %d states were explored", states)
	}
	all.check(t)
	for _, p := range properties {
		if !slices.ContainsFunc(brokens, func(b broken) bool { return b.falls == p.id }) {
			t.Errorf("no flaw shows that %s can fall", p.id)
		}
	}
}

// check fails if a decision of the machine was never taken: then the model
// says nothing about it. A flight that joins another one's execution, a request
// that is not the same, and a slot with a newer boot are not in it.
func (n *taken) check(t *testing.T) {
	for a, count := range n.actions {
		if outside := Action(a) == Join || Action(a) == Refuse; (count == 0) != outside {
			t.Errorf("%v was taken %d times", Action(a), count)
		}
	}
	for a, count := range n.recoveries {
		if count == 0 {
			t.Errorf("%v was never taken", RecoveryAction(a))
		}
	}
}

func propertyOf(t *testing.T, id string) property {
	for _, p := range properties {
		if p.id == id {
			return p
		}
	}
	t.Fatalf("no property %q", id)
	return property{}
}

// explored is what a search has found.
type explored struct {
	moments []moment
	falls   *property // what a step broke; nil: nothing
	last    moment    // where that step led
}

// moment is a state and how it was first reached.
type moment struct {
	state modelState
	from  int // the moment before; -1: none
	event modelEvent
}

// tooMany ends a search that has no end.
const tooMany = 3_000_000

// explore searches breadth first, so that it finds the shortest way to break
// one of the properties.
func (m *model) explore(properties []property) *explored {
	begin := m.essence(m.begin())
	x := &explored{moments: []moment{{state: begin, from: -1}}}
	seen := map[modelState]struct{}{begin: {}}
	for at := 0; at < len(x.moments) && x.falls == nil; at++ {
		before := x.moments[at].state
		m.successors(before, func(e modelEvent, after modelState) {
			if x.falls != nil {
				return
			}
			if x.falls = m.broken(properties, &before, &after, e); x.falls != nil {
				x.last = moment{after, at, e}
				return
			}
			after = m.essence(after)
			if _, known := seen[after]; known {
				return
			}
			seen[after] = struct{}{}
			x.moments = append(x.moments, moment{after, at, e})
		})
		if len(x.moments) > tooMany {
			panic("the search has no end: " + m.name)
		}
	}
	return x
}

// broken is the first property that a step breaks.
func (m *model) broken(properties []property, before, after *modelState, e modelEvent) *property {
	for i := range properties {
		if p := &properties[i]; p.promised(m) && !p.holds(m, before, after, e) {
			return p
		}
	}
	return nil
}

// trace tells the way to the broken property, an event a line: the second, who
// did what, and what stands in the store after it.
func (x *explored) trace(m *model) string {
	var way []moment
	for last := x.last; ; last = x.moments[last.from] {
		way = append(way, last)
		if last.from < 0 {
			break
		}
	}
	var out strings.Builder
	second, stored := 0, ""
	for i := len(way) - 1; i >= 0; i-- {
		line, now := "(the beginning)", m.stored(&way[i].state)
		if way[i].from >= 0 {
			line = way[i].event.String()
		}
		if way[i].event == timePasses {
			second++
		}
		if now != stored {
			line, stored = fmt.Sprintf("%-58s  %s", line, now), now
		}
		fmt.Fprintf(&out, "%4ds  %s\n", second, line)
	}
	return out.String()
}

// stored is what the store and the service hold, in a line.
func (m *model) stored(s *modelState) string {
	var out strings.Builder
	if r := s.store.record; r.state == noRecord {
		out.WriteString("no record")
	} else {
		fmt.Fprintf(&out, "record %s %s@%d", r.state.stored(), r.executor, r.epoch)
	}
	for p := range who(m.nodes) {
		fmt.Fprintf(&out, ", %s %s", p, s.store.executors[p].state.stored())
	}
	if s.service.applied > 0 {
		fmt.Fprintf(&out, ", applied %d×", s.service.applied)
	}
	return out.String()
}
