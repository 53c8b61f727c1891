package takeover

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestModelEssence walks at random, keeping everything that an essence would
// forget, and compares: a moment and its essence must have the same future, and
// break the same properties on the way into it. Else the search would take two
// different moments for one.
func TestModelEssence(t *testing.T) {
	const walks = 100
	for seed, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := &model{setting: s, taken: &taken{}}
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			for range walks {
				at := m.begin()
				for seconds := 0; seconds < int(present)-10; {
					whole, next := m.future(at)
					known, _ := m.future(m.essence(at))
					if !maps.Equal(whole, known) {
						t.Fatalf("successors of a moment, and of its essence:\n%s", differ(whole, known))
					}
					if len(next) == 0 {
						break
					}
					step := next[random.IntN(len(next))]
					if step.event == timePasses {
						seconds++
					}
					at = step.state
				}
			}
		})
	}
}

// outlook is what one step leads to, and what it breaks.
type outlook struct {
	event   modelEvent
	essence modelState
	breaks  string
}

// future is what may follow, by its essence and as it is.
func (m *model) future(before modelState) (outlooks map[outlook]bool, next []moment) {
	outlooks = map[outlook]bool{}
	m.successors(before, func(e modelEvent, after modelState) {
		o := outlook{event: e, essence: m.essence(after)}
		if p := m.broken(properties, &before, &after, e); p != nil {
			o.breaks = p.id
		}
		outlooks[o] = true
		next = append(next, moment{state: after, event: e})
	})
	return outlooks, next
}

// differ shows what a moment leads to and its essence does not, or the other
// way round.
func differ(whole, known map[outlook]bool) string {
	maps.DeleteFunc(whole, func(o outlook, _ bool) bool {
		also := known[o]
		delete(known, o)
		return also
	})
	return cmp.Diff(slices.Collect(maps.Keys(known)), slices.Collect(maps.Keys(whole)), cmp.Exporter(func(reflect.Type) bool { return true }))
}
