package speed_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// serve starts `probate serve` as a gateway in front of a service, over a
// store, and waits until it serves.
func serve(t testing.TB, store, upstream string) *fleet.Node {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "probate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
store: %s
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", allow: [127.0.0.0/8]}
log: {format: json}
routes:
  - match: {methods: [POST], path: "/orders/{id}/payments"}
    upstream: %s
    operation: create-payment
    resource: "{id}"
    principal: {headers: [Authorization]}
    reconcile: reexecute
`, store, upstream), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := fleet.Build(t, "../../cmd/node")
	n := fleet.Launch(t, func(ctx context.Context, _ fleet.Spec) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary, "serve", "--config", config)
		cmd.Dir, cmd.Env = folder, []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}, fleet.Spec{Slot: "served"})
	fleet.Await(t, "the node serves", func() bool {
		h, err := n.Health(t.Context())
		return err == nil && h.Ready
	})
	return n
}

// resident is the memory of a process that is in RAM, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) == 3 && string(fields[0]) == "VmRSS:" && string(fields[2]) == "kB" {
			n, err := strconv.ParseInt(string(fields[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no VmRSS of process %d", pid)
	return 0
}

const megabyte = 1e6
