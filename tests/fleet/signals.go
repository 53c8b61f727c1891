//go:build unix

package fleet

import (
	"syscall"
	"testing"
)

// Kill ends the child as a crash does, stopped or not, and returns once it is
// gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	_ = p.life.Close()
}

// Stop makes the child stand still: its sockets stay open and nobody reads
// them.
func (p *Process) Stop(t testing.TB) { p.signal(t, syscall.SIGSTOP) }

// Cont lets a stopped child go on.
func (p *Process) Cont(t testing.TB) { p.signal(t, syscall.SIGCONT) }

// Term asks the child to leave.
func (p *Process) Term(t testing.TB) { p.signal(t, syscall.SIGTERM) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v: %v", p.Name, s, err)
	}
}
