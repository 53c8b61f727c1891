package recordstest

import (
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestSuite(t *testing.T) {
	// The suite and the model say the same.
	t.Run("AcceptsTheModel", func(t *testing.T) {
		Run(t, freshMemory(func(s *memory) records.Store { return s }))
	})
	t.Run("NamesEveryRuleOnce", func(t *testing.T) {
		seen := make(map[string]bool)
		for _, g := range groups() {
			for _, r := range g.rules {
				name := g.name + "/" + r.name
				if seen[name] {
					t.Errorf("two rules are called %s", name)
				}
				seen[name] = true
			}
		}
	})
	t.Run("NamesItsCasesAndInvariants", func(t *testing.T) {
		for group, ids := range map[string][]string{
			"Case":      {"K03", "K05", "K12", "K13", "K41", "K47"},
			"Invariant": {"I1", "I2", "I3", "I4", "I5", "I9", "I11", "I12"},
		} {
			for _, id := range ids {
				if !named(group, id) {
					t.Errorf("no rule of %s is named for %s", group, id)
				}
			}
		}
	})
}

func named(inGroup, id string) bool {
	for _, g := range groups() {
		for _, r := range g.rules {
			if g.name == inGroup && strings.Contains("_"+r.name, "_"+id+"_") {
				return true
			}
		}
	}
	return false
}

func BenchmarkModel(b *testing.B) {
	Benchmark(b, freshMemory(func(s *memory) records.Store { return s }))
}
