//go:build unix

package speed_test

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// buffers are lent for copying; without, a proxy makes one for each response.
type buffers struct{ sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }

// BenchmarkPassThrough compares what the gateway does not record, with no route
// and on a route but without a key, with a reverse proxy alone over the same
// kind of transport.
func BenchmarkPassThrough(b *testing.B) {
	const inFlight = 64
	upstream := "http://" + listen(b, http.HandlerFunc(pay))
	node := startNode(b, postgrestest.Shared(b).Database(b))
	gateway := func(config api.Config) string {
		config.Coordinator, config.Logger = node, slog.New(slog.DiscardHandler)
		a, err := api.New(config)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = a.Close() })
		return listen(b, a)
	}
	target, err := url.Parse(upstream)
	if err != nil {
		b.Fatal(err)
	}
	// Set as the gateway's is.
	transport := &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 4 * time.Second, ExpectContinueTimeout: time.Second, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	alone := listen(b, &httputil.ReverseProxy{Transport: transport, BufferPool: &buffers{}, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}})
	for _, c := range []struct{ name, address string }{
		{"no-route", gateway(api.Config{PassThrough: upstream})},
		{"no-key", gateway(api.Config{Routes: []api.Route{{
			Methods: []string{http.MethodPost}, Path: "/orders/{id}/payments", Upstream: upstream, Operation: "create-payment",
			Resource: "{id}", Principal: api.Principal{Headers: []string{"Authorization"}},
		}}})},
	} {
		b.Run(c.name, func(b *testing.B) {
			compare(b,
				&side{name: "gateway", generator: aim(b, c.address, inFlight, noKey, "Location: /payments/")},
				&side{name: "proxy", generator: aim(b, alone, inFlight, noKey, "Location: /payments/")},
			)
		})
	}
}
