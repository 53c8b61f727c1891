package fleet_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

func TestSilentHost(t *testing.T) {
	t.Parallel()
	t.Run("IsFencedByProbesAndOvertaken", func(t *testing.T) {
		t.Parallel()
		times := fleet.Brisk()
		times.Lease = endless // only probes can have fenced it in time
		f, lab, nodes := newLab(t, times)
		hold := f.Ledger.Hold(fleet.BeforeEffect, "waited for", "asked later")
		first := nodes[0].Call(t, "waited for", fleet.Ask{})
		nodes[0].Call(t, "asked later", fleet.Ask{})
		hold.Await(t, 2)
		old := f.Store.Executor(t, "a")
		waiting := nodes[1].Call(t, "waited for", fleet.Ask{})
		waits(t, nodes[1], 1)

		lab.Silence(t)
		later := nodes[1].Call(t, "asked later", fleet.Ask{})
		waiting.Answer(t).Check(t, "taken_over", "entry 1 under waited for")
		later.Answer(t).Check(t, "taken_over", "entry 1 under asked later")
		silenced(t, f, nodes[0], nodes[1], "waited for")

		lab.Speak(t)
		f.Warm(t)
		if fresh := f.Store.Executor(t, "a"); fresh.ID == old.ID {
			t.Error("the fenced executor lives on")
		}
		first.Answer(t)
		replayed(t, "waited for", "entry 1 under waited for", nodes...)
		finalized(t, f, "asked later", "entry 1 under asked later")
	})
}

// BenchmarkTakeOverSilentHost measures from the moment when the packets of the
// owner's host are dropped, with default times, to a duplicate's answer.
func BenchmarkTakeOverSilentHost(b *testing.B) {
	for name, waits := range map[string]bool{"WhileADuplicateWaits": true, "BeforeTheDuplicateComes": false} {
		b.Run(name, func(b *testing.B) {
			sample(b, func(t testing.TB) time.Duration {
				f, lab, nodes := newLab(t, fleet.Times{})
				s := set(t, f, nodes)
				var waiting *fleet.Call
				if waits {
					waiting = s.wait()
				}
				s.since = time.Now()
				lab.Silence(t)
				if !waits {
					waiting = s.duplicate()
				}
				return s.until(waiting)
			})
		})
	}
}

// newLab makes a warm fleet of which the first node runs on a host of its own.
// From inside the lab the store and the ledger are reached through relays, for
// they are outside; and the nodes take requests at sockets in a folder.
func newLab(t testing.TB, times fleet.Times) (*fleet.Fleet, *fleet.Lab, []*fleet.Node) {
	t.Helper()
	lab := fleet.NewLab(t)
	program := func(ctx context.Context, s fleet.Spec) *exec.Cmd {
		host := lab.Near
		if strings.HasPrefix(s.Internal, fleet.LabFar) {
			host = lab.Far
		}
		return inside(ctx, host, program(ctx, s))
	}
	f := fleet.New(t, program, postgrestest.Database(t), times)
	folder := shortFolder(t)
	f.Base.DSN = outward(t, lab, f.Base.DSN, filepath.Join(folder, "store"), "5432")
	f.Base.Ledger = outward(t, lab, f.Base.Ledger, filepath.Join(folder, "ledger"), "8080")
	var all []fleet.Spec
	for _, slot := range []string{"a", "b", "c"} {
		s := f.Base
		s.Slot, s.Public, s.Internal = slot, "unix:"+filepath.Join(folder, slot), fleet.LabNear+":0"
		if slot == "a" {
			s.Internal = fleet.LabFar + ":0"
		}
		all = append(all, s)
	}
	return f, lab, f.StartAs(t, all...)
}

// inside makes a command run on a host of the lab.
func inside(ctx context.Context, host func(context.Context, string, ...string) *exec.Cmd, cmd *exec.Cmd) *exec.Cmd {
	entered := host(ctx, cmd.Path, cmd.Args[1:]...)
	entered.Env = cmd.Env
	return entered
}

// outward leads from a port in the lab, through a socket in the file system,
// to the host and port of a URL outside. It returns the URL to use inside.
func outward(t testing.TB, lab *fleet.Lab, target, socket, port string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Forward(l, "tcp", u.Host).Close)
	u.Host = net.JoinHostPort(fleet.LabNear, port) // of a network that is ours alone
	relay := fleet.Start(t, "relay "+port, inside(t.Context(), lab.Near, command(t.Context(), asRelay, map[string]string{u.Host: socket})))
	fleet.Await(t, "the relay listens", func() bool {
		if relay.Ended() {
			t.Fatalf("the relay ended: %s", relay.Output.Tail(5))
		}
		return len(relay.Output.Said("relaying")) > 0
	})
	return u.String()
}

// shortFolder is a temporary folder whose name leaves room for a socket's: the
// path of one has about a hundred bytes.
func shortFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "fleet-") //nolint:usetesting // t.TempDir is long: it holds the test's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
