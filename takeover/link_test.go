package takeover_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a TCP proxy that can be told to fail.
type link struct {
	listener net.Listener
	target   string
	life     context.Context

	mu    sync.Mutex
	fault fault
	delay time.Duration
	conns map[net.Conn]struct{}
	open  sync.WaitGroup
	moved chan struct{} // closed, and replaced, when the fault changes
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &link{listener: listener, target: target, life: life, conns: map[net.Conn]struct{}{}, moved: make(chan struct{})}
	l.open.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		end()
		l.set(cut)
		l.open.Wait()
	})
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

// set changes how the link behaves, for open connections too.
func (l *link) set(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	close(l.moved)
	l.moved = make(chan struct{})
	if f == cut {
		for c := range l.conns {
			reset(c)
		}
	}
}

// slow delays every chunk in both directions.
func (l *link) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.adopt(in) {
			continue
		}
		l.open.Go(func() {
			defer l.drop(in)
			out, err := (&net.Dialer{}).DialContext(l.life, "tcp", l.target)
			if err != nil {
				reset(in)
				return
			}
			defer l.drop(out)
			if !l.adopt(out) {
				return
			}
			var both sync.WaitGroup
			both.Go(func() { l.pump(out, in, deaf) })
			both.Go(func() { l.pump(in, out, mute) })
			both.Wait()
		})
	}
}

func (l *link) adopt(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == cut {
		reset(c)
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// pump copies one direction, holding every chunk while it is stopped.
func (l *link) pump(to, from net.Conn, stopped fault) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !l.pass(stopped) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reset(to)
			}
			return
		}
	}
}

// pass waits until the direction is open; false: the link was cut.
func (l *link) pass(stopped fault) bool {
	for {
		l.mu.Lock()
		fault, moved, delay := l.fault, l.moved, l.delay
		l.mu.Unlock()
		if fault == cut {
			return false
		}
		if fault != blackhole && fault != stopped {
			if delay > 0 {
				<-time.After(delay)
			}
			return true
		}
		<-moved
	}
}
