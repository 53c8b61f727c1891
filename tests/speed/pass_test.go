package speed_test

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

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
	// As the gateway's, but for what it counts.
	transport := &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 4 * time.Second, ExpectContinueTimeout: time.Second, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	alone := listen(b, &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}})
	for name, address := range map[string]string{
		"no-route": gateway(api.Config{PassThrough: upstream}),
		"no-key": gateway(api.Config{Routes: []api.Route{{
			Methods: []string{http.MethodPost}, Path: "/orders/{id}/payments", Upstream: upstream, Operation: "create-payment",
			Resource: "{id}", Principal: api.Principal{Headers: []string{"Authorization"}},
		}}}),
	} {
		b.Run(name, func(b *testing.B) {
			compare(b,
				&side{name: "gateway", generator: aim(b, address, inFlight, noKey, "Location: /payments/")},
				&side{name: "proxy", generator: aim(b, alone, inFlight, noKey, "Location: /payments/")},
			)
		})
	}
}
