//go:build unix

package tests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// moveData follows the section about data flows, with folders of its own.
func (r readme) moveData(t *testing.T, binary string) {
	const section = "Moving data"
	n := newNewcomer(t)
	srv := t.TempDir()
	there := strings.NewReplacer("/srv/", srv+"/")
	if err := os.Mkdir(filepath.Join(n.folder, "bin"), 0o750); err != nil {
		t.Fatal(err)
	}
	built, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(built, filepath.Join(n.folder, "bin", "probate")); err != nil {
		t.Fatal(err)
	}
	for name, language := range map[string]string{"flows.yaml": "yaml", "start.json": "json"} {
		text := n.ports.Replace(there.Replace(r.in(t, section, language, 1)[0]))
		if err := os.WriteFile(filepath.Join(n.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, code := n.run(t, "env -u PROBATE_LISTEN bin/probate serve --check --config flows.yaml"); code != 0 {
		t.Error("it listens where flows.yaml does not say")
	}
	before, after, found := strings.Cut(there.Replace(r.in(t, section, "console", 1)[0]), "$ curl -s localhost:8080/dataflows/tp-1/status\n")
	if !found {
		t.Fatal("nobody asks for the status")
	}
	n.console(t, before)
	// A person needs a moment to type, in which the copy ends.
	fleet.Await(t, "the copy is completed", func() bool {
		out, _ := n.run(t, "curl -s localhost:8080/dataflows/tp-1/status")
		return !strings.Contains(out, "STARTED")
	})
	n.console(t, "curl -s localhost:8080/dataflows/tp-1/status\n"+after)
	got, err := os.ReadFile(filepath.Join(srv, "received", "orders.csv"))
	if err != nil || string(got) != "1042,4200\n" {
		t.Errorf("received %q, %v", got, err)
	}
}
