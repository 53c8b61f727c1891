//go:build unix

package fleet

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Build builds a main package and returns where the program is, until the test
// ends. Under the race detector the program looks for races, too, and a
// [Process] reports what it finds.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	DependOnSources(t)
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

// DependOnSources makes the go command forget a cached result of the test when
// any file of the module has changed. It notes which folders and files a test
// itself reads, but not what a program does that the test starts.
func DependOnSources(t testing.TB) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Fatal("the test runs outside a module")
		}
		root = filepath.Dir(root)
	}
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
