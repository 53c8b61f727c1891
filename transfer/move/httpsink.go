package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// HTTPSink is where one PUT or POST goes.
//
// The bytes are streamed in one request. Until the commit that request is
// never whole: without a known length its last chunk is not sent, and with one
// its last byte is held back. A copy that fails breaks the connection (HTTP/1)
// or resets the stream (HTTP/2), which no receiver may take for the end.
//
// Nothing can be resumed. Each try is a request of its own and carries
// Idempotency-Epoch, so that a receiver that cares can refuse an older owner.
type HTTPSink struct {
	// URL is as in [HTTPSource]. Redirects are never followed.
	URL string
	// Method is PUT (default) or POST.
	Method string
	// Header is sent with the request. With an Idempotency-Key, a POST whose
	// answer was lost is sent again; without one it ends with [ErrUncertain].
	Header http.Header
	// Transport is usually [NewTransport]. Nil: one that may dial anything.
	Transport http.RoundTripper
}

// Begin implements [Sink].
func (s HTTPSink) Begin(ctx context.Context, start Start) (Part, error) {
	u, err := parseURL(AtSink, s.URL)
	if err != nil {
		return nil, err
	}
	method := s.Method
	switch method {
	case "":
		method = http.MethodPut
	case http.MethodPut, http.MethodPost:
	default:
		return nil, fatal(AtSink, ErrRefused, fmt.Errorf("method %q: PUT or POST", method))
	}
	p := &httpPart{
		moved: start.moved, length: start.Length, answered: make(chan struct{}),
		repeatable: method == http.MethodPut || s.Header.Get("Idempotency-Key") != "",
		client: &http.Client{
			Transport:     transportOr(s.Transport),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.ctx = ctx
	p.request = (&http.Request{Method: method, URL: u, Host: u.Host, Header: headerOf(s.Header), ContentLength: start.Length}).WithContext(ctx)
	p.request.Header.Set("Idempotency-Epoch", strconv.FormatInt(start.Epoch, 10))
	return p, nil
}

// Discard implements [Sink]: of a request that broke there is nothing left.
func (s HTTPSink) Discard(context.Context, Identity, string) error { return nil }

// httpPart is a request under way.
type httpPart struct {
	ctx        context.Context
	cancel     context.CancelFunc
	client     *http.Client
	request    *http.Request
	moved      func()
	length     int64
	repeatable bool

	pipe   *io.PipeWriter // nil: not sent yet
	offset int64
	held   []byte // the last byte, if the length is known
	whole  bool   // everything was offered to the receiver

	wg       sync.WaitGroup
	answered chan struct{} // closed when outcome is set
	outcome  error         // of the round trip; errEarly if it went well too soon
	finished bool
}

// Offset implements [Part].
func (p *httpPart) Offset() int64 { return p.offset }

// Room implements [Part].
func (p *httpPart) Room() int64 { return -1 }

// Checkpoint implements [Part]: there is none.
func (p *httpPart) Checkpoint() (Mark, error) { return Mark{}, nil }

// Write implements [Part].
func (p *httpPart) Write(b []byte) (int, error) {
	n := len(b)
	if n == 0 {
		return 0, nil
	}
	if p.length >= 0 && p.offset+int64(n) > p.length {
		return 0, fatal(AtSink, ErrLength, fmt.Errorf("more than %d bytes", p.length))
	}
	if p.offset+int64(n) == p.length {
		p.held, b = []byte{b[n-1]}, b[:n-1]
	}
	if err := p.send(b); err != nil {
		return 0, err
	}
	p.offset += int64(n)
	return n, nil
}

// send gives bytes to the request, which it starts with the first ones.
func (p *httpPart) send(b []byte) error {
	if p.pipe == nil {
		p.start()
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := p.pipe.Write(b); err != nil {
		<-p.answered
		return p.fault()
	}
	return nil
}

// start begins the round trip. An empty body that is known to be empty is not
// a stream: nothing of it could be held back.
func (p *httpPart) start() {
	r, w := io.Pipe()
	p.pipe = w
	p.request.Body = &movingReader{ReadCloser: r, moved: p.moved}
	if p.length == 0 {
		p.request.Body = http.NoBody
	}
	p.wg.Go(func() {
		defer close(p.answered)
		defer r.CloseWithError(errAnswered)
		p.outcome = p.roundTrip()
	})
}

var errAnswered = errors.New("answered before the body was whole")

func (p *httpPart) roundTrip() error {
	r, err := p.client.Do(p.request)
	if err != nil {
		return ioFault(p.ctx, AtSink, err)
	}
	defer discard(r)
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return statusFault(AtSink, r)
	}
	return nil
}

// fault is why the request ended before it was whole.
func (p *httpPart) fault() error {
	if p.outcome == nil {
		return fatal(AtSink, ErrRefused, errAnswered)
	}
	return p.outcome
}

// Seal implements [Part]: whatever makes the request whole is the commit.
func (p *httpPart) Seal() error { return nil }

// Commit implements [Part]: what makes the request whole is sent, and the
// answer decides.
func (p *httpPart) Commit(ctx context.Context) error {
	defer p.end()
	if p.length >= 0 && p.offset != p.length {
		return fatal(AtSink, ErrLength, fmt.Errorf("%d of %d bytes", p.offset, p.length))
	}
	select {
	case <-p.answered:
		return p.fault()
	default:
	}
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	if err := p.send(p.held); err != nil {
		return err
	}
	p.whole = true
	p.pipe.CloseWithError(io.EOF)
	<-p.answered
	f, ok := errors.AsType[*Fault](p.outcome)
	if ok && f.Status == 0 && !p.repeatable && !errors.Is(f, ErrAddress) {
		return fatal(AtSink, ErrUncertain, f.Err)
	}
	return p.outcome
}

// Abort implements [Part]. The body ends with an error, so the transport
// breaks the request instead of finishing it.
func (p *httpPart) Abort(context.Context) error {
	p.end()
	return nil
}

// Keep implements [Part]: there is nothing that could be kept.
func (p *httpPart) Keep() error {
	p.end()
	return nil
}

func (p *httpPart) end() {
	if p.finished {
		return
	}
	p.finished = true
	if p.pipe != nil && !p.whole {
		p.pipe.CloseWithError(errAborted)
	}
	p.cancel()
	p.wg.Wait()
}

var errAborted = errors.New("copy aborted")

// movingReader tells whenever it was read from.
type movingReader struct {
	io.ReadCloser

	moved func()
}

// Read implements io.Reader.
func (r *movingReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.moved()
	return n, err
}
