//go:build unix

package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay is a link between two parties that can be told to fail.
type Relay struct {
	listener net.Listener
	dial     func(ctx context.Context) (net.Conn, error)
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	state  linkState
	moved  chan struct{} // closed, and replaced, when the state changes
	joined map[net.Conn]struct{}
}

type linkState int

const (
	whole   linkState = iota
	frozen            // connections stay, new ones come about, and nothing passes
	severed           // connections are reset, new ones too
)

// NewRelay leads from a free port on loopback to a TCP address.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := Forward(l, "tcp", to)
	t.Cleanup(r.Close)
	return r
}

// Forward leads from a listener to an address, until it is closed.
func Forward(from net.Listener, network, to string) *Relay {
	dial := dialer(&net.Dialer{}, network, to)
	r := &Relay{
		listener: from, moved: make(chan struct{}), joined: map[net.Conn]struct{}{},
		dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "", "") },
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	return r
}

// dialer dials the one address whatever it is asked for.
func dialer(d *net.Dialer, network, address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, network, address) }
}

// Addr is where the relay listens.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Freeze lets nothing pass any more, in either direction. Nobody is told.
func (r *Relay) Freeze() { r.become(frozen) }

// Cut resets every connection, and every new one.
func (r *Relay) Cut() { r.become(severed) }

// Heal lets everything pass again, what was held first.
func (r *Relay) Heal() { r.become(whole) }

// Close ends the relay and waits for what it runs.
func (r *Relay) Close() {
	r.end()
	_ = r.listener.Close()
	r.become(severed)
	r.running.Wait()
}

func (r *Relay) become(s linkState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	close(r.moved)
	r.moved = make(chan struct{})
	if s == severed {
		for c := range r.joined {
			reset(c)
		}
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.serve(in) })
	}
}

func (r *Relay) serve(in net.Conn) {
	if !r.join(in) {
		return
	}
	defer r.leave(in)
	out, err := r.dial(r.life)
	if err != nil {
		reset(in)
		return
	}
	if !r.join(out) {
		return
	}
	defer r.leave(out)
	var both sync.WaitGroup
	both.Go(func() { r.pump(out, in) })
	both.Go(func() { r.pump(in, out) })
	both.Wait()
}

func (r *Relay) join(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == severed {
		reset(c)
		return false
	}
	r.joined[c] = struct{}{}
	return true
}

func (r *Relay) leave(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.joined, c)
}

// pump copies one direction and keeps what it read while the link is frozen,
// the end of the stream too.
func (r *Relay) pump(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !r.pass() {
			return
		}
		if n > 0 {
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

// pass waits while the link is frozen; false: it was cut.
func (r *Relay) pass() bool {
	for {
		r.mu.Lock()
		state, moved := r.state, r.moved
		r.mu.Unlock()
		switch state {
		case whole:
			return true
		case severed:
			return false
		case frozen:
			<-moved
		}
	}
}
