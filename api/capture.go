package api

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// capture is the http.ResponseWriter of one run of a handler. It keeps the
// response, so that the client gets it only once it is stored. When the body
// outgrows the limit, or the handler flushes or hijacks, it writes straight
// through instead, and what is stored is a tombstone.
type capture struct {
	client *client
	limit  int64
	// streams says whether a flush means that the client should see something
	// now. A proxy flushes every response of unknown length.
	streams func(h http.Header) bool
	// guesses: a body without Content-Type gets one, as net/http would do it.
	guesses bool
	// mark completes the header of a response on its way to the client.
	mark func(h http.Header, status int)

	mu     sync.Mutex
	base   http.Header // what stood in the header before the handler ran
	header http.Header // what the handler edits
	sent   http.Header // the header when the handler wrote it; nil: it did not yet
	status int
	length int64  // declared Content-Length; -1: none
	body   []byte // while everything is kept
	size   int64
	sum    hash.Hash     // of the body, once not everything is kept
	taken  bool          // hijacked or unwrapped: what is written is not seen here
	raw    bool          // unwrapped
	closed bool          // the handler has returned
	silent bool          // and wrote nothing
	over   chan struct{} // closed when the run has ended
}

func newCapture(c *client, limit int64, mark func(http.Header, int)) *capture {
	base := c.headers()
	return &capture{
		client: c, limit: limit, mark: mark, base: base, header: base.Clone(), length: -1,
		streams: func(http.Header) bool { return true }, guesses: true,
	}
}

// Header implements [http.ResponseWriter].
func (c *capture) Header() http.Header { return c.header }

// WriteHeader implements [http.ResponseWriter]. A 1xx goes to the client at
// once; of the others the first counts.
func (c *capture) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sent != nil || c.taken || c.closed:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		c.client.inform(status, c.header)
	default:
		c.writeHeader(status)
	}
}

func (c *capture) writeHeader(status int) {
	c.status, c.sent = status, maps.Clone(c.header)
	if n, err := strconv.ParseInt(c.sent.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		c.length = n
	}
}

// Write implements [http.ResponseWriter].
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.taken:
		return 0, http.ErrHijacked
	case c.closed:
		return 0, http.ErrHandlerTimeout
	case c.sent == nil:
		c.writeHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !bodyAllowed(c.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if c.length >= 0 && c.size+int64(len(p)) > c.length {
		return 0, http.ErrContentLength
	}
	if c.sum == nil && c.size+int64(len(p)) > c.limit {
		c.letGo()
	}
	c.size += int64(len(p))
	if c.sum == nil {
		c.body = append(c.body, p...)
		return len(p), nil
	}
	c.sum.Write(p)
	c.client.write(c, p)
	return len(p), nil
}

// WriteString implements [io.StringWriter].
func (c *capture) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// ReadFrom implements [io.ReaderFrom].
func (c *capture) ReadFrom(r io.Reader) (int64, error) {
	buffer := buffers.Get()
	defer buffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, buffer)
}

// letGo stops keeping the body: what there is goes to the client, if it is
// still there, and so does all that follows.
func (c *capture) letGo() {
	c.sum = sha256.New()
	c.sum.Write(c.body)
	h := maps.Clone(c.sent)
	if _, says := h["Content-Type"]; !says && !c.guesses {
		h["Content-Type"] = nil
	}
	c.mark(h, c.status)
	c.client.stream(c, c.status, h, c.body)
	c.body = nil
}

// FlushError implements what [http.ResponseController.Flush] looks for.
func (c *capture) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.taken || c.closed:
		return http.ErrHijacked
	case c.sent == nil:
		c.writeHeader(http.StatusOK)
	}
	if c.sum == nil {
		if !c.streams(c.sent) {
			return nil
		}
		c.letGo()
	}
	return c.client.flush(c)
}

// Flush implements [http.Flusher].
func (c *capture) Flush() { _ = c.FlushError() }

// Hijack implements [http.Hijacker].
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken || c.closed {
		return nil, nil, http.ErrHijacked
	}
	conn, rw, err := c.client.hijack(c)
	c.taken = err == nil
	return conn, rw, err
}

// Unwrap gives [http.ResponseController] and its like the writer beneath. What
// is written there is not seen here, so it makes the response a tombstone.
// Once the client has gone there is nothing beneath.
func (c *capture) Unwrap() http.ResponseWriter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.client.unwrap(c)
	if !ok {
		return nowhere{c.header}
	}
	if !c.taken {
		replaceHeader(w.Header(), c.header)
		c.mark(w.Header(), http.StatusOK)
	}
	c.taken, c.raw = true, true
	return w
}

// nowhere takes what is written after the client has gone.
type nowhere struct{ h http.Header }

// Header implements [http.ResponseWriter].
func (n nowhere) Header() http.Header { return n.h }

// WriteHeader implements [http.ResponseWriter].
func (n nowhere) WriteHeader(int) {}

// Write implements [http.ResponseWriter].
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }

// SetReadDeadline implements what [http.ResponseController] looks for.
func (c *capture) SetReadDeadline(t time.Time) error {
	return c.client.deadline(func(rc *http.ResponseController) error { return rc.SetReadDeadline(t) })
}

// SetWriteDeadline implements what [http.ResponseController] looks for.
func (c *capture) SetWriteDeadline(t time.Time) error {
	return c.client.deadline(func(rc *http.ResponseController) error { return rc.SetWriteDeadline(t) })
}

// EnableFullDuplex implements what [http.ResponseController] looks for. The
// request was read before the handler ran, so there is nothing to do.
func (c *capture) EnableFullDuplex() error { return nil }

// close is said when the handler has returned. A handler that wrote nothing
// has answered 200 with an empty body.
func (c *capture) close(normally bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = c.sent == nil && !c.taken
	if normally && c.silent {
		c.writeHeader(http.StatusOK)
	}
	if c.sum != nil {
		c.client.trail(c, c.header)
	}
	if c.kept() && c.sent != nil {
		c.contentType()
	}
	c.closed = true
}

// complete reports whether the response has all the bytes that its header
// promised.
func (c *capture) complete() bool {
	return c.length < 0 || c.size == c.length || !bodyAllowed(c.status)
}

// kept reports whether the whole response was kept. Like what follows it is
// asked after close.
func (c *capture) kept() bool { return c.sum == nil && !c.taken }

// contentType is what net/http would add: the handler said nothing, and there
// is a body to guess from. A header set to nil asks for no guess.
func (c *capture) contentType() {
	if _, says := c.sent["Content-Type"]; says {
		return
	}
	c.sent["Content-Type"] = nil
	if c.guesses && len(c.body) > 0 && c.sent.Get("Content-Encoding") == "" && c.sent.Get("Transfer-Encoding") == "" {
		c.sent["Content-Type"] = []string{http.DetectContentType(c.body)}
	}
}

// response is what is stored: all of it, or a tombstone.
func (c *capture) response(secret bool) records.Response {
	if c.kept() && !secret {
		r := records.Response{Status: c.status, Headers: storable(c.sent, c.base), Body: c.body}
		if r.Body == nil {
			r.Body = []byte{}
		}
		if headerBytes(r.Headers) <= records.MaxHeaderBytes {
			return r
		}
	}
	return c.tombstone(secret)
}

// tombstone says that there was a response, and what can be said about it.
func (c *capture) tombstone(secret bool) records.Response {
	r := records.Response{Status: c.status}
	if r.Status == 0 {
		r.Status = http.StatusSwitchingProtocols // hijacked: nobody saw a status
		if c.raw {
			r.Status = http.StatusOK
		}
	}
	if l := c.sent.Get("Location"); l != "" && len(l) < records.MaxHeaderBytes/2 {
		r.Headers = append(r.Headers, records.Header{Name: "Location", Value: l})
	}
	if c.taken || secret {
		return r
	}
	sum := c.sum
	if sum == nil {
		sum = sha256.New()
		sum.Write(c.body)
	}
	return records.Response{Status: r.Status, Headers: append(
		r.Headers,
		records.Header{Name: "Content-Length", Value: strconv.FormatInt(c.size, 10)},
		records.Header{Name: headerDigest, Value: "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"},
	)}
}

func headerBytes(headers []records.Header) int {
	n := 0
	for _, h := range headers {
		n += len(h.Name) + len(h.Value) + 2
	}
	return n
}

// deliver sends a response that was kept to its first caller, with every
// header and trailer. It runs on the request's goroutine, after close.
func (c *capture) deliver(w http.ResponseWriter) {
	h := w.Header()
	replaceHeader(h, c.sent)
	c.mark(h, c.status)
	trailers := hasTrailers(c.header)
	if bodyAllowed(c.status) && !trailers {
		h["Content-Length"] = []string{strconv.Itoa(len(c.body))}
	}
	w.WriteHeader(c.status)
	if len(c.body) > 0 {
		_, _ = w.Write(c.body) // a client that is gone will ask again
	}
	if trailers {
		if len(c.header["Trailer"]) == 0 {
			_ = http.NewResponseController(w).Flush() // no length: trailers need chunks
		}
		copyTrailers(h, c.header)
	}
}

// buffers are lent for copying.
var buffers = &bufferPool{}

// bufferPool implements httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

// Get lends a buffer.
func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

// Put takes it back.
func (b *bufferPool) Put(p []byte) { b.pool.Put(&p) }
