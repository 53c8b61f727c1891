//go:build unix

package fleet

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds a main package and returns where the program is, until the test
// ends. Under the race detector the program looks for races, too, and a
// [Process] reports what it finds.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, pkg)...).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return binary
}
