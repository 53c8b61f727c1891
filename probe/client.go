package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

// ClientConfig is what a client needs to know. Zero durations and sizes mean
// the default.
type ClientConfig struct {
	Cluster string // a statement of another cluster proves nothing

	Dial    time.Duration // to resolve and connect; default 500 ms
	Header  time.Duration // from the written request to the answer's header, and for a TLS handshake; default 1 s
	Overall time.Duration // one probe from start to end; default Dial + Header + 300 ms, less than a witness is waited for

	BodyLimit int64 // bytes of an answer that are read; default and maximum MaxMessage

	Allow []netip.Prefix // addresses that may be dialled; empty: all unicast ones but link-local and metadata
	TLS   *tls.Config    // for https URLs, with a client certificate for mTLS; nil: system roots
	Token string         // bearer token that the fleet shares; empty: none

	// Lookup finds an executor other than the one asked, to verify an answer
	// that it signed; nil: knows nobody. It is called while an answer is
	// judged, so it should read memory.
	Lookup func(records.ExecutorID) (records.Executor, bool)

	Resolver *net.Resolver // nil: the default one
}

// Client asks executors. It is safe for concurrent use.
type Client struct {
	cfg      ClientConfig
	allow    allowList
	resolver *net.Resolver
	fresh    *http.Transport // HTTP/1.1, one connection for each question
	shared   *http.Transport // HTTP/2, one connection for each peer
	pins     pins
	links    links

	life  context.Context // ends when the client is closed
	end   context.CancelCauseFunc
	mu    sync.Mutex // orders enter and Close
	calls sync.WaitGroup
}

// A shared connection on which nothing came for pingAfter is pinged, and counts
// as broken if no answer comes for pingAnswer. With a fresh probe, the budget
// and a last witness after that, a vanished host is overtaken within the budget
// and two seconds.
const (
	pingAfter  = 500 * time.Millisecond
	pingAnswer = 750 * time.Millisecond
)

// NewClient fills in the defaults. Close it when done.
func NewClient(cfg ClientConfig) *Client {
	cfg.Dial = positive(cfg.Dial, 500*time.Millisecond)
	cfg.Header = positive(cfg.Header, time.Second)
	cfg.Overall = positive(cfg.Overall, cfg.Dial+cfg.Header+300*time.Millisecond)
	cfg.BodyLimit = min(positive(cfg.BodyLimit, MaxMessage), MaxMessage)
	if cfg.Lookup == nil {
		cfg.Lookup = func(records.ExecutorID) (records.Executor, bool) { return records.Executor{}, false }
	}
	c := &Client{cfg: cfg, allow: cfg.Allow, resolver: cfg.Resolver}
	c.life, c.end = context.WithCancelCause(context.Background())
	if c.resolver == nil {
		c.resolver = net.DefaultResolver
	}
	var http1, http2 http.Protocols
	http1.SetHTTP1(true)
	http2.SetHTTP2(true)
	http2.SetUnencryptedHTTP2(true)
	c.fresh, c.shared = c.transport(&http1), c.transport(&http2)
	c.shared.IdleConnTimeout = 30 * time.Second
	c.shared.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAnswer, WriteByteTimeout: 2 * time.Second}
	return c
}

func positive[T ~int64](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// transport never asks the environment for a proxy: Proxy stays nil.
func (c *Client) transport(p *http.Protocols) *http.Transport {
	return &http.Transport{
		DialContext:            c.dial,
		TLSClientConfig:        c.cfg.TLS.Clone(),
		TLSHandshakeTimeout:    c.cfg.Header,
		Protocols:              p,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
	}
}

// Close ends every question, waits for those who asked, and lets all
// connections go.
func (c *Client) Close() error {
	c.mu.Lock()
	c.end(ErrClosed)
	c.mu.Unlock()
	c.calls.Wait()
	c.links.closeAll()
	return nil
}

// enter counts a call in. Its context also ends when the client is closed.
func (c *Client) enter(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		cancel(ErrClosed)
		return ctx, func() {}
	}
	c.calls.Add(1)
	return ctx, func() {
		stop()
		cancel(nil)
		c.calls.Done()
	}
}

// Probe asks a, on a connection made for this question, whether it is running
// the record. The zero record asks only for a sign of life.
func (c *Client) Probe(ctx context.Context, a records.Executor, id records.ID, epoch int64) Observation {
	start := time.Now()
	ctx, leave := c.enter(ctx)
	defer leave()
	q := recordQuestion(a.ID, id, epoch, 0)
	reply, f := c.askFresh(ctx, a.URL, q, c.cfg.Header, c.cfg.Overall)
	o := Observation{Asked: a.ID}
	if f == nil {
		o = c.judgeRecord(reply, a, q)
	}
	return finish(ctx, o, f, start)
}

// Witness asks w what it sees of the suspect, and names it by id: the witness
// knows the address, or says [Unknown]. Asked about itself, w only signs.
//
// A witness needs the time of a probe itself, so the answer may take Overall
// longer than a probe's. Give ctx a deadline to wait less.
func (c *Client) Witness(ctx context.Context, w records.Executor, suspect records.ExecutorID) Testimony {
	start := time.Now()
	ctx, leave := c.enter(ctx)
	defer leave()
	q := witnessQuestion(suspect)
	reply, f := c.askFresh(ctx, w.URL, q, c.cfg.Header+c.cfg.Overall, 2*c.cfg.Overall)
	t := Testimony{Heard: Observation{Asked: w.ID}}
	if f == nil {
		t = c.judgeWitness(reply, w, q)
	}
	t.Heard = finish(ctx, t.Heard, f, start)
	return t
}

// finish turns a failure into an observation, unless the caller gave up: its
// context says nothing about the executor.
func finish(ctx context.Context, o Observation, f *failure, start time.Time) Observation {
	o.Elapsed = time.Since(start)
	switch {
	case f == nil:
	case ctx.Err() != nil:
		o.Verdict, o.Err, o.Cancelled = Unknown, context.Cause(ctx), true
	default:
		o.Verdict, o.Err = f.verdict, f
	}
	return o
}

// question is a request and what its answer must match.
type question struct {
	path    string
	body    request
	nonce   Nonce
	record  records.ID
	epoch   int64
	suspect records.ExecutorID
}

// request is the body of a question on the wire. Unknown fields are ignored
// by who reads it, so that a newer version may add some.
type request struct {
	Executor string `json:"executor"`
	Epoch    int64  `json:"epoch,omitempty"`
	Nonce    string `json:"nonce"`
	WaitMS   int64  `json:"wait_ms,omitempty"`
}

func recordQuestion(asked records.ExecutorID, id records.ID, epoch int64, wait time.Duration) question {
	q := question{path: "/probe/records/" + id.String(), nonce: NewNonce(), record: id, epoch: epoch}
	q.body = request{Executor: asked.String(), Epoch: epoch, Nonce: q.nonce.String(), WaitMS: wait.Milliseconds()}
	return q
}

func witnessQuestion(suspect records.ExecutorID) question {
	q := question{path: "/probe/witness", nonce: NewNonce(), suspect: suspect}
	q.body = request{Executor: suspect.String(), Nonce: q.nonce.String()}
	return q
}

// askFresh sends the question on a connection of its own.
func (c *Client) askFresh(ctx context.Context, url string, q question, header, overall time.Duration) ([]byte, *failure) {
	scheme, hostport, err := c.allow.target(url)
	if err != nil {
		return nil, failed(Unknown, ErrNoConnection, err)
	}
	ctx, cancel := context.WithTimeout(ctx, overall)
	defer cancel()
	conn, sole, f := c.connect(ctx, c.fresh, scheme, hostport)
	if f != nil {
		return nil, f
	}
	defer func() { _ = conn.Close() }() // it was for this question only
	reply, x := c.exchange(ctx, conn, url, q, header, overall)
	if x.err != nil {
		return nil, failed(ofExchange(x.err, x.answered, sole), ErrNoAnswer, x.err)
	}
	return reply, x.refused
}

// connect dials, and with https shakes hands. sole: a reset tells something,
// for the address was the only one of its name, and without TLS, where a peer
// that does not like our certificate may reset too.
func (c *Client) connect(ctx context.Context, t *http.Transport, scheme, hostport string) (conn *http.ClientConn, sole bool, f *failure) {
	var note dialed
	conn, err := t.NewClientConn(context.WithValue(ctx, dialedKey{}, &note), scheme, hostport)
	if err == nil {
		return conn, note.sole && scheme == "http", nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return nil, false, f // of the dial
	}
	verdict := Unknown
	if isTimeout(err) {
		verdict = Silent // a stopped process: its kernel accepts and it never shakes hands
	}
	return nil, false, failed(verdict, ErrNoConnection, err)
}

// exchanged says how far an exchange came.
type exchanged struct {
	err      error    // no complete answer
	refused  *failure // a complete answer that is not from our handler
	answered bool     // a byte of an answer arrived
	begun    bool     // the answer has a good header
}

// Both are timeouts to isTimeout.
var (
	errHeaderTimeout = fmt.Errorf("header: %w", context.DeadlineExceeded)
	errBodyTimeout   = fmt.Errorf("body: %w", context.DeadlineExceeded)
)

// exchange sends the question on conn and reads what comes back: the header
// within one limit, the body within another. A redirect is an answer like any
// other that is not 200.
func (c *Client) exchange(ctx context.Context, conn *http.ClientConn, url string, q question, header, body time.Duration) ([]byte, exchanged) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	awaitHeader := time.AfterFunc(header, func() { cancel(errHeaderTimeout) })
	defer awaitHeader.Stop()

	var answered atomic.Bool
	trace := httptrace.ClientTrace{GotFirstResponseByte: func() { answered.Store(true) }}
	fail := func(err error, begun bool) ([]byte, exchanged) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, exchanged{err: err, answered: begun || answered.Load(), begun: begun}
	}
	req, err := c.newRequest(httptrace.WithClientTrace(ctx, &trace), url, q)
	if err != nil {
		return fail(err, false)
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return fail(err, false)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, exchanged{refused: failed(Unknown, ErrNotOurs, fmt.Errorf("status %d", resp.StatusCode))}
	}
	awaitHeader.Stop()
	awaitBody := time.AfterFunc(body, func() { cancel(errBodyTimeout) })
	defer awaitBody.Stop()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.BodyLimit+1))
	switch {
	case err != nil:
		return fail(err, true)
	case int64(len(reply)) > c.cfg.BodyLimit:
		return nil, exchanged{refused: failed(Unknown, ErrNotOurs, fmt.Errorf("body over %d bytes", c.cfg.BodyLimit))}
	}
	return reply, exchanged{}
}

func (c *Client) newRequest(ctx context.Context, url string, q question) (*http.Request, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+q.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // asked once: a transport must not send it again by itself
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "probate")
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	return req, nil
}
