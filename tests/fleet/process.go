//go:build unix

package fleet

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// Process is a child of the test.
type Process struct {
	Name   string
	Output *Output // what it wrote to standard output and error

	cmd   *exec.Cmd
	life  io.Closer // the other end of its standard input
	ended chan struct{}
	err   error // of its end
}

// Start starts a child. Its standard input stays open as long as the test
// lives, so a child that reads to the end of it ends with the test.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, Output: &Output{}, cmd: cmd, ended: make(chan struct{})}
	input, life, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.life = life
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, p.Output, p.Output
	cmd.SysProcAttr = attributes()
	err = cmd.Start()
	_ = input.Close()
	if err != nil {
		_ = life.Close()
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if p.Output.Has("WARNING: DATA RACE") {
			t.Errorf("%s: data race", name)
		}
		if t.Failed() {
			t.Logf("%s (pid %d):\n%s", name, p.Pid(), p.Output.Tail(60))
		}
	})
	return p
}

// Pid is the child's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended reports whether the child has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// AwaitEnd waits for the child's own end and returns its error: nil after
// exit code 0.
func (p *Process) AwaitEnd(t testing.TB) error {
	t.Helper()
	Await(t, p.Name+" ends", p.Ended)
	return p.err
}
