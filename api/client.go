package api

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// errClientGone is what a run is told that wants the client's connection for
// itself when the client has left.
var errClientGone = errors.New("the client has gone")

// client is the connection of whoever sent a request, as the runs of its
// handler may use it. The request's own goroutine leaves when it has its
// answer or its client has gone; after that nothing touches the connection,
// while a run may go on.
type client struct {
	w http.ResponseWriter

	// What cut needs, apart from mu, which a write may hold for long.
	cutting sync.Mutex
	streams bool // there is an owner
	closed  bool // the request's goroutine has left

	mu     sync.Mutex
	left   bool
	broken bool     // a write failed: what follows is discarded
	owner  *capture // writes straight through; nil: nobody does
	raw    bool     // the owner holds w itself
}

// headers is a copy of what stands in the response's header before a handler
// runs; empty once the client has left.
func (c *client) headers() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return http.Header{}
	}
	return c.w.Header().Clone()
}

// inform sends a 1xx at once. It is no part of the response.
func (c *client) inform(status int, h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.owner != nil {
		return
	}
	header := c.w.Header()
	before := maps.Clone(header)
	replaceHeader(header, h)
	c.w.WriteHeader(status)
	replaceHeader(header, before)
}

// stream gives the connection to one run: its response so far is sent, and
// what it writes from now on. False: the client has left, or another run's
// response was begun; then the caller's is discarded.
func (c *client) stream(owner *capture, status int, h http.Header, body []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.owner != nil {
		return false
	}
	c.own(owner)
	replaceHeader(c.w.Header(), h)
	c.w.WriteHeader(status)
	if len(body) > 0 {
		c.send(body)
	}
	return true
}

// write sends more of the owner's response. It waits while the client reads
// slowly, and discards when it does not read any more.
func (c *client) write(owner *capture, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left && c.owner == owner {
		c.send(p)
	}
}

func (c *client) send(p []byte) {
	if c.broken {
		return
	}
	_, err := c.w.Write(p)
	c.broken = err != nil
}

// flush sends what is buffered.
func (c *client) flush(owner *capture) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.owner != owner || c.broken {
		return nil
	}
	return http.NewResponseController(c.w).Flush()
}

// trail sends the trailers among a run's headers after its body.
func (c *client) trail(owner *capture, h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left && c.owner == owner {
		copyTrailers(c.w.Header(), h)
	}
}

// hijack hands the connection over.
func (c *client) hijack(owner *capture) (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.owner != nil && c.owner != owner {
		return nil, nil, errClientGone
	}
	conn, rw, err := http.NewResponseController(c.w).Hijack()
	if err == nil {
		c.own(owner)
	}
	return conn, rw, err
}

// unwrap hands out the writer itself. From then on the request's goroutine
// stays until the run has ended.
func (c *client) unwrap(owner *capture) (http.ResponseWriter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.owner != nil && c.owner != owner {
		return nil, false
	}
	c.own(owner)
	c.raw = true
	return c.w, true
}

// deadline sets one of the connection's deadlines.
func (c *client) deadline(set func(rc *http.ResponseController) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil
	}
	return set(http.NewResponseController(c.w))
}

// cut ends a write that waits for a client which does not read, if there may
// be one. The write holds the lock, but a connection's deadlines may be set at
// any time.
func (c *client) cut() {
	c.cutting.Lock()
	defer c.cutting.Unlock()
	if !c.streams || c.closed {
		return
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0))
}

// leave is said by the request's goroutine before it answers or returns. It
// returns the run that wrote the answer itself, if one did.
func (c *client) leave() (owner *capture, raw bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	c.cutting.Lock()
	defer c.cutting.Unlock()
	c.closed = true
	return c.owner, c.raw
}

func (c *client) own(owner *capture) {
	c.owner = owner
	c.cutting.Lock()
	defer c.cutting.Unlock()
	c.streams = true
}

// replaceHeader makes h equal to next.
func replaceHeader(h, next http.Header) {
	clear(h)
	maps.Copy(h, next)
}

// copyTrailers copies the headers that are trailers, announced or by their
// prefix.
func copyTrailers(to, from http.Header) {
	announced := trailerNames(from)
	for name, values := range from {
		if strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(announced, name) {
			to[name] = values
		}
	}
}

// hasTrailers reports whether copyTrailers would, or may later, copy any.
func hasTrailers(h http.Header) bool {
	if len(h["Trailer"]) > 0 {
		return true
	}
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}
