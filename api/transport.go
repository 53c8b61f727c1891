package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// errNotSent: not one byte of the request was written.
	errNotSent = errors.New("nothing was sent")
	// errUpstreamTimeout is the cause of a request that waited too long for
	// response headers.
	errUpstreamTimeout = errors.New("upstream timeout")
)

// newTransport speaks HTTP/1.1: a connection then carries one request at a
// time, so what was written on it was written for that request, and whether
// anything was can be counted.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &counted{Conn: conn}, nil
		},
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 512,
		// Shorter than servers commonly keep a connection (some 5s): a request
		// written while its upstream is just closing has an unknown outcome.
		IdleConnTimeout:       4 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // bytes as they are
		Protocols:             &http1,
	}
}

// counted is a connection that counts what is written on it.
type counted struct {
	net.Conn
	written atomic.Int64
}

// Write counts before it writes, and takes back what the system did not
// accept: what is not counted was not sent, at any moment.
func (c *counted) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// countedBelow finds the counting connection below TLS.
func countedBelow(conn net.Conn) *counted {
	for {
		switch c := conn.(type) {
		case *counted:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// passing sends requests that are not recorded.
type passing struct{ transport *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil && resends(r) {
		r.Body = &emptyBody{}
		if r.Header.Get("Upgrade") != "" {
			r.TransferEncoding = []string{"identity"} // not even the end of a body: what follows is another protocol
		}
	}
	return p.transport.RoundTrip(r)
}

// resends reports whether [http.Transport] would send such a request again by
// itself when its connection breaks, though it may change something: it takes
// these headers for a promise that this does no harm. It does so only without
// a body or with a GetBody.
func resends(r *http.Request) bool {
	return (len(r.Header[headerKey]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0) && !neverRecorded(r.Method)
}

// emptyBody is a body, and it is empty.
type emptyBody struct{}

// Read implements [io.Reader].
func (*emptyBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements [io.Closer].
func (*emptyBody) Close() error { return nil }

// sender sends recorded requests, each once.
type sender struct {
	transport *http.Transport
	timeout   time.Duration // for the response's headers
}

// RoundTrip implements [http.RoundTripper]. An error is errNotSent if nothing
// was written.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	e, ok := ExecutionFrom(r.Context())
	if !ok {
		return nil, errors.New("request without a claim")
	}
	body := e.run.x.body
	for {
		ctx, timer, cancel := timeoutOf(r.Context(), s.timeout)
		var w wire
		attempt := r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: w.gotConn}))
		attempt.GetBody = nil
		attempt.Body, attempt.ContentLength = &emptyBody{}, 0
		if len(body) > 0 {
			attempt.Body, attempt.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		resp, err := s.transport.RoundTrip(attempt)
		timer.Stop()
		if err == nil {
			resp.Body = &cancelling{ReadCloser: resp.Body, cancel: cancel}
			return resp, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		retry := w.stale() && ctx.Err() == nil
		cancel(nil)
		switch {
		case retry: // the upstream had closed a connection that was kept; a fresh one will do
		case w.silent():
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		default:
			return nil, err
		}
	}
}

// wire notes what was written of one request.
type wire struct {
	mu     sync.Mutex
	conn   *counted
	before int64
	any    bool // a connection was had
	reused bool
}

func (w *wire) gotConn(info httptrace.GotConnInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.any, w.reused, w.conn = true, info.Reused, countedBelow(info.Conn)
	if w.conn != nil {
		w.before = w.conn.written.Load()
	}
}

// silent reports whether provably nothing was written.
func (w *wire) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.any || w.conn != nil && w.conn.written.Load() == w.before
}

// stale reports whether a kept connection turned out to be dead before
// anything was written on it.
func (w *wire) stale() bool {
	silent := w.silent()
	w.mu.Lock()
	defer w.mu.Unlock()
	return silent && w.any && w.reused
}

// cancelling ends a request's context with its response.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements [io.Closer].
func (c *cancelling) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}
