package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// headerServedBy says which node an answer came from.
const headerServedBy = "X-Served-By"

// balancer sends requests to the nodes in turn, as far as they say that they
// serve. It never sends one twice: only a client knows whether it may.
type balancer struct {
	url    string
	client *http.Client // of the demo's clients
	server *http.Server
	served sync.WaitGroup
	cancel context.CancelFunc

	backs []*backend
	next  atomic.Uint64
}

// backend is a node as the balancer sees it.
type backend struct {
	name, base string
	up         atomic.Bool
	proxy      *httputil.ReverseProxy
}

func openBalancer(ctx context.Context, nodes []*actor) (*balancer, error) {
	b := &balancer{client: &http.Client{Transport: &http.Transport{}}}
	for _, a := range nodes {
		back, err := newBackend(a)
		if err != nil {
			return nil, err
		}
		b.backs = append(b.backs, back)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the balancer: %w", err)
	}
	b.url = "http://" + listener.Addr().String()
	ctx, b.cancel = context.WithCancel(ctx)
	for _, back := range b.backs {
		b.served.Go(func() { back.watch(ctx) })
	}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	b.served.Go(func() { _ = b.server.Serve(listener) }) // until it is closed
	return b, nil
}

func (b *balancer) close() {
	b.cancel()
	_ = b.server.Close()
	b.served.Wait()
	b.client.CloseIdleConnections()
	for _, back := range b.backs {
		back.proxy.Transport.(*http.Transport).CloseIdleConnections()
	}
}

// ServeHTTP implements [http.Handler].
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for range b.backs {
		if back := b.backs[(b.next.Add(1)-1)%uint64(len(b.backs))]; back.up.Load() {
			back.proxy.ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, "no node serves", http.StatusServiceUnavailable)
}

func newBackend(a *actor) (*backend, error) {
	target, err := url.Parse(a.public)
	if err != nil {
		return nil, fmt.Errorf("%s listens at %q: %w", a.name, a.public, err)
	}
	back := &backend{name: a.name, base: a.public}
	back.proxy = &httputil.ReverseProxy{
		Transport: &http.Transport{},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Set(headerServedBy, a.name)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			back.up.Store(false)
			w.Header().Set(headerServedBy, a.name)
			http.Error(w, a.name+" broke off", http.StatusBadGateway)
		},
	}
	return back, nil
}

// watch asks the node for its health until ctx ends.
func (b *backend) watch(ctx context.Context) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		b.up.Store(b.healthy(ctx, client))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (b *backend) healthy(ctx context.Context, client *http.Client) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/probe", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
