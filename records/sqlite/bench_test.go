package sqlite_test

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// BenchmarkRequest is one reserve and one finalize with a realistic row, with
// so many requests in flight, with and without group commit.
func BenchmarkRequest(b *testing.B) {
	for _, flight := range []struct {
		name string
		n    int
	}{{"1", 1}, {"8", 8}, {"64", 64}} {
		b.Run("InFlight="+flight.name, func(b *testing.B) {
			b.Run("OneByOne", func(b *testing.B) {
				benchmarkRequest(b, sqlite.WithMaxBatch(sqlite.Config{}, 1), flight.n)
			})
			b.Run("GroupCommit", func(b *testing.B) { benchmarkRequest(b, sqlite.Config{}, flight.n) })
		})
	}
}

func benchmarkRequest(b *testing.B, c sqlite.Config, inFlight int) {
	s := open(b, c)
	by := register(b, s, records.Registration{})
	body := make([]byte, 200)
	rand.Read(body)
	var next atomic.Int64
	b.ResetTimer()
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				r := reserve(b, s, by.ID)
				err := s.Finalize(b.Context(), r.ID, r.Fence(), records.Outcome{
					Response:  records.Response{Status: 201, Headers: headers, Body: body},
					Retention: 24 * time.Hour,
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

var headers = []records.Header{
	{Name: "Content-Type", Value: "application/json"},
	{Name: "Location", Value: "/orders/4711"},
	{Name: "Etag", Value: `"a6b1e5"`},
}
