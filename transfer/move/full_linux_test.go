package move_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
)

// smallDisc mounts a file system of 8 MiB over the folder $0 and runs the rest
// there.
const smallDisc = `mount -t tmpfs -o size=8m tmpfs "$0" && exec "$@"`

// TestFileSink_Full has a disc that is really full: a small one, mounted in a
// mount namespace of a child, which root may make, and everybody in a user
// namespace where the kernel allows it.
func TestFileSink_Full(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatalf("this test needs unshare: %v", err)
	}
	args := []string{unshare, "--mount"}
	if exec.CommandContext(t.Context(), unshare, "--mount", "true").Run() != nil {
		args = append(args, "--user", "--map-root-user")
	}
	to := newFile(t)
	server := startChild(t, "serve", order{Length: 16 << 20})
	a := startChild(t, "copy", order{Root: to.root, URLs: []string{server.URL}},
		append(args, "sh", "-c", smallDisc, to.root)...)
	if len(a.Faults) != 1 || !strings.Contains(a.Faults[0], "sink: "+move.ErrSinkFull.Error()) {
		t.Errorf("faults %q, want %v", a.Faults, move.ErrSinkFull)
	}
	if len(a.Left) != 0 {
		t.Errorf("%q is left", a.Left)
	}
}
