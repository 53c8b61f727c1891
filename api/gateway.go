package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"github.com/probate-dev/probate/takeover"
)

// upstreams are the services behind the gateway. All share one transport.
type upstreams struct {
	config    Config
	transport *http.Transport
}

func newUpstreams(c Config) *upstreams { return &upstreams{config: c, transport: newTransport()} }

// serve makes an endpoint send its requests to its route's upstream: keyed
// ones under a claim, others as they are.
func (s *upstreams) serve(e *endpoint) {
	e.pass = s.pass(e.route.Upstream)
	e.prepare = func(c *capture) { c.guesses, c.streams = false, isStream }
	proxy := s.proxy(e.route.Upstream)
	proxy.Transport = &sender{transport: s.transport, timeout: e.route.Timeout}
	passed := proxy.Rewrite
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		passed(r)
		forwardClaim(r)
	}
	proxy.ModifyResponse = noteCut
	proxy.ErrorHandler = noteFailure
	e.next = proxy
}

// pass is a handler that sends everything on as it is.
func (s *upstreams) pass(upstream string) http.Handler {
	proxy := s.proxy(upstream)
	proxy.Transport = passing{s.transport}
	proxy.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
		s.config.Logger.WarnContext(r.Context(), "upstream failed", "upstream", upstream, "error", err)
		p := problem{code: codeUpstreamFailed}
		if errors.Is(err, errNotSent) {
			p.code = codeUpstreamUnavailable
		}
		writeProblem(w, ProfileIETF, s.config.ProblemTypes, p)
	}
	return proxy
}

// proxy is what both kinds have in common. The upstream sees the request as
// this node got it: its Host, its query, and who forwarded it before.
func (s *upstreams) proxy(upstream string) *httputil.ReverseProxy {
	target, err := url.Parse(upstream)
	if err != nil {
		panic("upstream was validated: " + err.Error())
	}
	return &httputil.ReverseProxy{
		BufferPool: buffers,
		ErrorLog:   slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			forwardedFor(r)
			// Only this node may say under which fence a request comes.
			r.Out.Header.Del(headerEpoch)
			r.Out.Header.Del(headerOperation)
		},
	}
}

// forwardedFor adds this hop to what the hops before have said.
func forwardedFor(r *httputil.ProxyRequest) {
	in, out := r.In.Header, r.Out.Header
	if prior, ok := in["X-Forwarded-For"]; ok {
		out["X-Forwarded-For"] = prior
	}
	r.SetXForwarded()
	for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := in[name]; ok {
			out[name] = values
		}
	}
}

// forwardClaim tells the service under which claim the request comes, so that
// it can refuse an older fence.
func forwardClaim(r *httputil.ProxyRequest) {
	e, ok := ExecutionFrom(r.In.Context())
	if !ok {
		return
	}
	claim, h := e.Claim(), r.Out.Header
	h.Del("Expect") // the body is here
	h[headerKey] = []string{e.run.x.forwardedKey()}
	h[headerEpoch] = []string{strconv.FormatInt(claim.Record.Epoch, 10)}
	h[headerOperation] = []string{claim.Record.ID.String()}
}

// isStream reports whether a response is meant to be seen as it comes. Others
// of unknown length are only generated as they are sent.
func isStream(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch media {
	case "text/event-stream", "application/x-ndjson", "application/json-seq", "multipart/x-mixed-replace":
		return true
	}
	return h.Get("X-Accel-Buffering") == "no"
}

// noteFailure notes why the upstream gave no response.
func noteFailure(_ http.ResponseWriter, r *http.Request, err error) {
	e, ok := ExecutionFrom(r.Context())
	if !ok {
		return
	}
	f := fault{code: codeUpstreamFailed, reason: "upstream: " + err.Error()}
	switch {
	case errors.Is(err, errNotSent):
		f.code, f.untouched = codeUpstreamUnavailable, true
	case errors.Is(err, errUpstreamTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, takeover.ErrWorkTimeout):
		f.code = codeUpstreamTimeout
	}
	e.run.fail(f)
}

// noteCut notes when a response breaks off.
func noteCut(resp *http.Response) error {
	if e, ok := ExecutionFrom(resp.Request.Context()); ok && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &noting{ReadCloser: resp.Body, run: e.run}
	}
	return nil
}

// noting is a response's body that notes its breaking off.
type noting struct {
	io.ReadCloser
	run *run
}

func (n *noting) Read(p []byte) (int, error) {
	c, err := n.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.run.fail(fault{code: codeUpstreamFailed, reason: "upstream: response broke off: " + err.Error()})
	}
	return c, err
}

// timeoutOf runs out unless it is stopped.
func timeoutOf(ctx context.Context, d time.Duration) (context.Context, *time.Timer, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, time.AfterFunc(d, func() { cancel(errUpstreamTimeout) }), cancel
}
