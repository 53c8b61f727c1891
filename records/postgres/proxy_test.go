package postgres_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// link is the network between a store and its server, which a test can break.
type link struct {
	t        testing.TB
	listener net.Listener
	server   string
	heard    func(answer []byte) // is shown what the server of a single connection says; nil: nobody

	mu     sync.Mutex
	conns  map[net.Conn]net.Conn // client's side to server's
	spare  int                   // answers to let through before
	lose   int                   // answers to lose, each with its connection
	gone   int                   // answers that were lost
	frozen chan struct{}         // not nil: nothing passes until it is closed
}

// newLink returns a link to a server, open until the test ends.
func newLink(t testing.TB, server string) *link {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{t: t, listener: l, server: server, conns: map[net.Conn]net.Conn{}}
	var wg sync.WaitGroup
	wg.Go(func() { k.accept(&wg) })
	t.Cleanup(func() {
		_ = l.Close()
		k.thaw()
		k.cut()
		wg.Wait()
	})
	return k
}

// through is a database's URL by way of the link.
func (k *link) through(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		k.t.Fatal(err)
	}
	u.Host = k.listener.Addr().String()
	return u.String()
}

func (k *link) accept(wg *sync.WaitGroup) {
	for {
		client, err := k.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", k.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		k.mu.Lock()
		k.conns[client] = server
		k.mu.Unlock()
		wg.Go(func() { k.pass(client, server, nil) })
		wg.Go(func() { k.pass(server, client, k.answers) })
	}
}

// pass copies from one side to the other until one of them closes or an answer
// is to be lost.
func (k *link) pass(from, to net.Conn, loses func(b []byte) bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil || n > 0 && loses != nil && loses(b[:n]) {
			return
		}
		k.mu.Lock()
		frozen := k.frozen
		k.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if _, err := io.Writer(to).Write(b[:n]); err != nil {
			return
		}
	}
}

// answers shows what the server says, and reports whether it is to be lost.
func (k *link) answers(b []byte) bool {
	if k.heard != nil {
		k.heard(b)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spare > 0 {
		k.spare--
		return false
	}
	if k.lose == 0 {
		return false
	}
	k.lose--
	k.gone++
	return true
}

// loseAnswers lets n answers of the server vanish, after some that it spares,
// and breaks the connections they came by: what was asked was done.
func (k *link) loseAnswers(spare, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spare, k.lose = spare, n
}

// lost counts the answers that were lost.
func (k *link) lost() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

// freeze lets nothing through, and breaks nothing.
func (k *link) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen = make(chan struct{})
}

func (k *link) thaw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.frozen != nil {
		close(k.frozen)
		k.frozen = nil
	}
}

// cut breaks every connection.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for client, server := range k.conns {
		_, _ = client.Close(), server.Close()
		delete(k.conns, client)
	}
}
