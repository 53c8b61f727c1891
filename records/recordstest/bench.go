package recordstest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// InFlight are the loads at which stores are compared.
var InFlight = []int{1, 8, 64, 256}

// Benchmark measures the hot path, one reserve and one finalize of a fresh key
// with a realistic row, with each number of requests in flight.
func Benchmark(b *testing.B, fresh func(b testing.TB) (open func(b testing.TB) records.Store)) {
	for _, n := range InFlight {
		b.Run(fmt.Sprintf("in-flight=%d", n), func(b *testing.B) {
			BenchmarkInFlight(b, fresh(b)(b), n)
		})
	}
}

// BenchmarkInFlight measures b.N requests over a store, n of them at any time,
// and reports requests per second.
func BenchmarkInFlight(b *testing.B, s records.Store, n int) {
	e, err := s.Register(b.Context(), registration(records.Registration{}))
	if err != nil {
		b.Fatal(err)
	}
	done := records.Outcome{Retention: 24 * time.Hour, Response: records.Response{
		Status: 201,
		Headers: []records.Header{
			{Name: "Content-Type", Value: "application/json"},
			{Name: "Location", Value: "/orders/0198c5f7-7a34-7c1e-9d1b-3d0d8d1c2b11"},
			{Name: "Etag", Value: `"5f2b8c0e"`},
		},
		Body: randomBytes(200),
	}}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := request(b, s, e.ID, done); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// request is what a first request costs its store.
func request(b *testing.B, s records.Store, by records.ExecutorID, done records.Outcome) error {
	got, err := s.Reserve(b.Context(), reservation(by))
	if err != nil {
		return err
	}
	if !got.Owned {
		return errNotOwned
	}
	return s.Finalize(b.Context(), got.Record.ID, got.Record.Fence(), done)
}
