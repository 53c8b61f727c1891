package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
)

// paid answers as a small service would.
var paid = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"pay_1","amount":1250,"currency":"EUR","status":"succeeded"}`)
})

var payment = []byte(`{"amount":1250,"currency":"EUR","source":"card_42"}`)

// drive sends payments over kept connections, as many at a time as there are
// processors, and reports requests a second.
func drive(b *testing.B, address string, key func() string) {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address+paymentPath, bytes.NewReader(payment))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header = http.Header{"Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}}
			if k := key(); k != "" {
				req.Header["Idempotency-Key"] = []string{k}
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func noKey() string  { return "" }
func oneKey() string { return "the-same" }

func freshKeys() func() string {
	var n atomic.Int64
	return func() string { return strconv.FormatInt(n.Add(1), 36) }
}

func bare(b *testing.B, h http.Handler) string {
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	return server.URL
}

func chiHandler() http.Handler {
	router := chi.NewRouter()
	router.Handle("/orders/{id}/payments", paid)
	return router
}

// BenchmarkPassThrough: what the gateway costs requests that it does not
// record, against a reverse proxy alone.
func BenchmarkPassThrough(b *testing.B) {
	upstream := bare(b, paid)
	target, err := url.Parse(upstream)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ReverseProxy", func(b *testing.B) {
		transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
		defer transport.CloseIdleConnections()
		proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
		drive(b, bare(b, proxy), noKey)
	})
	b.Run("Gateway", func(b *testing.B) {
		drive(b, openRoutes(b, nil, upstream, fleet()[0])[0], noKey)
	})
	b.Run("GatewayRoute", func(b *testing.B) { drive(b, gateway.node0(b, payments(b), paid), noKey) })
}

// BenchmarkReplay: a replay against the handler itself.
func BenchmarkReplay(b *testing.B) {
	b.Run("ChiHandler", func(b *testing.B) { drive(b, bare(b, chiHandler()), oneKey) })
	for _, d := range []door{middleware, gateway} {
		b.Run(d.name, func(b *testing.B) {
			address := d.node0(b, payments(b), paid)
			send(b, address, request{key: oneKey(), body: string(payment)})
			drive(b, address, oneKey)
		})
	}
}

// BenchmarkFirst: a first execution over the embedded store, against the
// handler itself.
func BenchmarkFirst(b *testing.B) {
	b.Run("ChiHandler", func(b *testing.B) { drive(b, bare(b, chiHandler()), freshKeys()) })
	for _, d := range []door{middleware, gateway} {
		for _, at := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%dAtOnce", d.name, at), func(b *testing.B) {
				b.SetParallelism(at)
				drive(b, d.node0(b, payments(b), paid), freshKeys())
			})
		}
	}
}
