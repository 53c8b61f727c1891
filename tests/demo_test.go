package tests_test

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const demo = `nodes A and B                  -> registered, at http://127.0.0.1:8081 and http://127.0.0.1:8082
A gets the request             -> owned: A executes it
B gets it again                -> a duplicate: in_progress at A; ask http://127.0.0.1:8081
A falls silent, B fences it    -> A is fenced
A was only paused, and beats   -> refused: executor is not active
B takes the record over        -> owned: B executes it, at the next epoch
A wants to finalize after all  -> refused: fence no longer holds
B finalizes                    -> stored: 201 {"order":1042}
the client tries once more     -> replayed: 201 {"order":1042}
`

// TestDemo runs what `make demo` runs and expects the whole story.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./tests/demo")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make demo: %v\n%s", err, out)
	}
	if diff := cmp.Diff(demo, string(out)); diff != "" {
		t.Errorf("make demo printed something else (-want +got):\n%s", diff)
	}
}
