package tests_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makePattern = regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z]+)")
)

// TestDocuments keeps what the documents say about the tree true.
func TestDocuments(t *testing.T) {
	t.Parallel()
	targets := makeTargets(t)
	if want := []string{"build", "test", "lint", "bench", "demo", "ci"}; !slices.Equal(targets, want) {
		t.Errorf("make lists %q, want %q", targets, want)
	}
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range brokenLinks(path.Dir(name), string(text)) {
			t.Errorf("%s links to %s, which is not there", name, target)
		}
		for _, m := range makePattern.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s says `make %s`, which is not a target", name, m[1])
			}
		}
	}
}

// TestContributing keeps the table of who may import whom complete.
func TestContributing(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if first, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | "); isRow && strings.HasPrefix(line, "| `") {
			for name := range strings.SplitSeq(first, ", ") {
				named[strings.Trim(name, "`")] = true
			}
		}
	}
	for _, r := range law {
		if !named[r.folder] {
			t.Errorf("CONTRIBUTING.md does not say what %s may import", r.folder)
		}
		delete(named, r.folder)
	}
	for name := range named {
		t.Errorf("CONTRIBUTING.md says what %s may import, and the law has no such folder", name)
	}
}

func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	text := "[a](README.md) [b](records/doc.go#L1) [c](https://example.org/x) [d](#state) [e](no/such.md)"
	if got, want := brokenLinks(".", text), []string{"no/such.md"}; !slices.Equal(got, want) {
		t.Errorf("broken links = %q, want %q", got, want)
	}
}

// brokenLinks lists the links in a document of folder dir to files that do not
// exist.
func brokenLinks(dir, text string) []string {
	var broken []string
	for _, m := range linkPattern.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, dir, target)); err != nil {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// makeTargets is what `make`, alone, lists.
func makeTargets(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory")
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make: %v", err)
	}
	var targets []string
	for line := range bytes.Lines(out) {
		if words := strings.Fields(string(line)); len(words) > 2 && words[0] == "make" {
			targets = append(targets, words[1])
		}
	}
	return targets
}

// documents lists the Markdown files of the tree.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("no document found")
	}
	return names
}
