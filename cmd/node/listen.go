package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/probate-dev/probate/probe"
)

// listen opens both listeners. What else could go wrong is tried after it:
// who is connected while the store opens waits, instead of being refused.
func (n *node) listen(ctx context.Context) (err error) {
	if n.public, err = new(net.ListenConfig).Listen(ctx, "tcp", n.config.Listen); err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	if n.internal, err = new(net.ListenConfig).Listen(ctx, "tcp", n.config.Internal.Listen); err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	return nil
}

// publicServer serves clients: the gateway's routes, and the health check for
// balancers that cannot use another port.
func (n *node) publicServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(n.servePublic),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelWarn),
		TLSConfig:         n.publicTLS,
		Protocols:         http1(),
	}
}

// http1 is what the public listener speaks, with TLS or without.
func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

func (n *node) servePublic(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == n.config.Probe && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		n.probes.Health(w, r)
		return
	}
	if n.leaving.Load() && r.Header.Get("Upgrade") == "" {
		w = &lastAnswer{ResponseWriter: w}
	}
	if n.data.serves(r) {
		n.tracer.serve(n.data.routes, w, r)
		return
	}
	n.tracer.serve(n.gateway.Load(), w, r)
}

// lastAnswer ends its connection, in words: the answer is given, and the
// client's next request should go to another node. Connections that are closed
// without a word can lose the request that is on its way.
type lastAnswer struct {
	http.ResponseWriter
	told bool
}

// Unwrap is for [http.ResponseController].
func (l *lastAnswer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (l *lastAnswer) WriteHeader(status int) {
	if status >= http.StatusOK && !l.told {
		l.told = true
		l.Header().Set("Connection", "close")
	}
	l.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (l *lastAnswer) Write(b []byte) (int, error) {
	if !l.told {
		l.WriteHeader(http.StatusOK)
	}
	return l.ResponseWriter.Write(b)
}

// internalServer serves peers, balancers and operators.
func (n *node) internalServer() *http.Server {
	router := chi.NewRouter()
	n.probes.Mount(router)
	router.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	}))
	n.data.mount(router, n.probes.Guard)
	router.Handle("/v1/*", n.newAdmin())
	s := probe.Server(router, n.tls)
	s.ErrorLog = slog.NewLogLogger(n.log.Handler(), slog.LevelDebug) // a port scan is no news
	return s
}

// serveOn serves until the server is shut down or closed.
func (n *node) serveOn(s *http.Server, l net.Listener) error {
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}
