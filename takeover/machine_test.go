package takeover

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
)

var update = flag.Bool("update", false, "rewrite the expected halves of the scripts in testdata")

// A script is a situation that unfolds, a blank line, and the action after
// each of its lines. Each line sets fields and leaves the others as they were:
//
//	state=in_progress holder=another executor=active claim waiting
//	evidence=failed
//	reread
//
// A bare word sets a flag, one with "!" before it clears it. A script whose
// first word is "recovery" sets the fields of a Recovery.
func TestMachine(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(script), "\n\n")
			got := play(t, input)
			if *update {
				if err := os.WriteFile(path, []byte(input+"\n\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("actions differ (-want +got):\n%s", diff)
			}
		})
	}
}

// play returns the action after each line of a script.
func play(t *testing.T, input string) string {
	t.Helper()
	var out strings.Builder
	var s Situation
	var r Recovery
	for line := range strings.Lines(input) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var action fmt.Stringer
		if words[0] == "recovery" {
			set(t, recoveryFields(&r), words[1:])
			action = Recover(r)
		} else {
			set(t, situationFields(&s), words)
			action = Decide(s)
		}
		fmt.Fprintln(&out, action)
	}
	return out.String()
}

func situationFields(s *Situation) map[string]any {
	return map[string]any{
		"state": &s.State, "same": &s.SameRequest, "holder": &s.Holder, "executor": &s.Executor, "policy": &s.Policy,
		"stale": &s.Stale, "stale_refused": &s.StaleRefused, "evidence": &s.Evidence, "reread": &s.Reread,
		"claim": &s.MayClaim, "reconcile": &s.MayReconcile, "waiting": &s.Waiting,
	}
}

func recoveryFields(r *Recovery) map[string]any {
	return map[string]any{
		"takeovers": &r.Takeovers, "limit": &r.Limit, "asked": &r.Asked, "finding": &r.Finding,
		"settling": &r.Settling, "late": &r.Late, "work": &r.Work,
	}
}

func set(t *testing.T, fields map[string]any, words []string) {
	t.Helper()
	for _, word := range words {
		name, value, isValue := strings.Cut(word, "=")
		name, cleared := strings.CutPrefix(name, "!")
		field, ok := fields[name]
		if !ok {
			t.Fatalf("no field %q", name)
		}
		switch f := field.(type) {
		case *bool:
			*f = !cleared
			continue
		case *records.State:
			*f = records.State(value)
		case *records.ExecutorState:
			*f = records.ExecutorState(value)
		case *records.Policy:
			*f = records.Policy(value)
		case *int:
			if _, err := fmt.Sscan(value, f); err != nil {
				t.Fatalf("%s: %v", word, err)
			}
		case *Holder:
			*f = named(t, value, Another, Here, Orphaned)
		case *Evidence:
			*f = named(t, value, NotAsked, SaysRunning, SaysNotRunning, SaysReplaced, Failed, ConfirmedDead, Doubted)
		case *FindingKind:
			*f = named(t, value, Undecidable, Applied, NotApplied, Pending)
		default:
			t.Fatalf("field %q has type %T", name, field)
		}
		if !isValue {
			t.Fatalf("%q needs a value", word)
		}
	}
}

func named[T fmt.Stringer](t *testing.T, name string, all ...T) T {
	t.Helper()
	i := slices.IndexFunc(all, func(v T) bool { return v.String() == name })
	if i < 0 {
		t.Fatalf("no %v is called %q", reflect.TypeFor[T](), name)
	}
	return all[i]
}
