//go:build unix

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// The test binary is also the programs that the tests start: with one of these
// in its environment it is that program, told by the value what to do.
const (
	asNode  = "PROBATE_FLEET_NODE"
	asRelay = "PROBATE_FLEET_RELAY"
)

func TestMain(m *testing.M) {
	for name, run := range map[string]func(raw string) error{asNode: runNode, asRelay: runRelay} {
		if raw, ok := os.LookupEnv(name); ok {
			go dieWithTheTest()
			if err := run(raw); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// dieWithTheTest ends the process when its standard input does: the other end
// is the test's.
func dieWithTheTest() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}

// program is this binary as a node.
func program(ctx context.Context, s fleet.Spec) *exec.Cmd { return command(ctx, asNode, s) }

// command is this binary as one of the programs.
func command(ctx context.Context, as string, told any) *exec.Cmd {
	binary, err := os.Executable()
	if err != nil {
		panic(err)
	}
	raw, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(os.Environ(), as+"="+string(raw))
	return cmd
}
