//go:build unix

package flows_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// workshop holds the binary, once for all tests.
var workshop string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "flows")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workshop = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(workshop, "probate")
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../../cmd/node")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// probate is the built binary.
func probate(t testing.TB) string {
	t.Helper()
	fleet.DependOnSources(t)
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
