package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Lab is a network of its own, with one host apart: two network namespaces
// joined by a cable. Most of a fleet runs in the first; the node that shall
// fall silent runs in the other, where a packet filter can drop whatever comes
// and goes. A process that is silenced so does not know it, and its kernel
// neither refuses nor resets anything.
//
// A lab needs the right to make network namespaces: root has it, and so has,
// where the kernel allows it, everybody in a user namespace of their own.
type Lab struct {
	near, far *Process // hold the namespaces open
	userToo   bool     // they lie in a user namespace
}

// Addresses of the two ends of the cable.
const (
	LabNear = "10.77.0.1"
	LabFar  = "10.77.0.2"
)

// NewLab makes the namespaces and lays the cable. It ends with the test.
func NewLab(t testing.TB) *Lab {
	t.Helper()
	l := &Lab{}
	l.near = l.unshare(t)
	l.far = Start(t, "far host", l.Near(t.Context(), "unshare", "--net", "sh", "-c", holdOpen))
	awaitNamespace(t, l.far)
	l.run(t, l.Near, "ip", "link", "set", "lo", "up")
	l.run(t, l.Near, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", strconv.Itoa(l.far.Pid()))
	l.run(t, l.Near, "ip", "address", "add", LabNear+"/24", "dev", "cable")
	l.run(t, l.Near, "ip", "link", "set", "cable", "up")
	l.run(t, l.Far, "ip", "link", "set", "lo", "up")
	l.run(t, l.Far, "ip", "address", "add", LabFar+"/24", "dev", "cable")
	l.run(t, l.Far, "ip", "link", "set", "cable", "up")
	return l
}

// holdOpen says that the namespace is there, and stays in it.
const holdOpen = "echo here; exec cat"

// unshare makes the near namespace, in a user namespace if nothing else is
// allowed.
func (l *Lab) unshare(t testing.TB) *Process {
	t.Helper()
	var refused []string
	for _, userToo := range []bool{false, true} {
		args := []string{"--net", "sh", "-c", holdOpen}
		if userToo {
			args = append([]string{"--user", "--map-root-user"}, args...)
		}
		p := Start(t, "near host", exec.CommandContext(t.Context(), tool("unshare"), args...))
		if awaitNamespace(t, p) {
			l.userToo = userToo
			return p
		}
		refused = append(refused, p.Output.Tail(5))
	}
	t.Fatalf("this test needs a network namespace, and the kernel refuses one: run it as root, or allow user namespaces "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)\n%s",
		strings.Join(refused, ""))
	return nil
}

// awaitNamespace reports whether the process stands in its namespace.
func awaitNamespace(t testing.TB, p *Process) bool {
	t.Helper()
	Await(t, p.Name+" is there", func() bool { return p.Output.Has("here") || p.Ended() })
	return p.Output.Has("here")
}

// Near is a command in the namespace of the many.
func (l *Lab) Near(ctx context.Context, name string, args ...string) *exec.Cmd {
	return l.enter(ctx, l.near, name, args)
}

// Far is a command in the namespace of the one.
func (l *Lab) Far(ctx context.Context, name string, args ...string) *exec.Cmd {
	return l.enter(ctx, l.far, name, args)
}

// enter makes a command that becomes the one that is wanted: the process keeps
// its id.
func (l *Lab) enter(ctx context.Context, where *Process, name string, args []string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(where.Pid()), "--net"}
	if l.userToo {
		enter = append(enter, "--user", "--preserve-credentials")
	}
	return exec.CommandContext(ctx, tool("nsenter"), append(append(enter, "--", tool(name)), args...)...)
}

// Silence drops every packet to and from the far host.
func (l *Lab) Silence(t testing.TB) {
	t.Helper()
	l.run(t, l.Far, "nft", `
table inet silence {
	chain arriving { type filter hook input priority 0; iifname "cable" drop; }
	chain leaving { type filter hook output priority 0; oifname "cable" drop; }
}`)
}

// Speak ends the silence.
func (l *Lab) Speak(t testing.TB) {
	t.Helper()
	l.run(t, l.Far, "nft", "delete table inet silence")
}

func (l *Lab) run(t testing.TB, where func(context.Context, string, ...string) *exec.Cmd, name string, args ...string) {
	t.Helper()
	if out, err := where(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// tool finds a program where it may lie outside an ordinary user's path.
func tool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, folder := range []string{"/usr/sbin", "/sbin"} {
		if path := fmt.Sprintf("%s/%s", folder, name); executable(path) {
			return path
		}
	}
	return name // its absence is what the error will say
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
