package postgres_test

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// once reports whether benchmarks only prove that they run.
func once() bool {
	f := flag.Lookup("test.benchtime")
	return f != nil && f.Value.String() == "1x"
}

// BenchmarkHeartbeat measures a heartbeat of an executor with nothing and with
// a hundred thousand records in flight.
func BenchmarkHeartbeat(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, rows := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("in-flight=%d", rows), func(b *testing.B) {
			dsn := cluster.Database(b)
			s := openStore(b, postgres.Config{DSN: dsn})
			e, err := s.Register(b.Context(), registration())
			if err != nil {
				b.Fatal(err)
			}
			if !once() {
				inFlight(b, dsn, e, rows)
			}
			for b.Loop() {
				if _, err := s.Heartbeat(b.Context(), e.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPurge measures how long reserves take, eight in flight, alone and
// while a hundred thousand expired rows are purged.
func BenchmarkPurge(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for b.Loop() {
		dsn, rows := cluster.Database(b), 100_000
		if once() {
			rows = 2000
		}
		s := openStore(b, postgres.Config{DSN: dsn, Grace: records.DefaultGrace})
		e, err := s.Register(b.Context(), registration())
		if err != nil {
			b.Fatal(err)
		}
		fill(b, dsn, rows)
		exec1(b, dsn, `UPDATE probate.records SET expires_at = now() - interval '1 day'`)
		exec1(b, dsn, `CHECKPOINT`)

		purged, began := 0, time.Now()
		busy := reserves(b, s, e.ID, func() bool {
			n, err := s.Purge(b.Context(), 1000)
			if err != nil {
				b.Fatal(err)
			}
			purged += n
			return n > 0
		})
		took := time.Since(began)
		if purged != rows {
			b.Errorf("purged %d rows, want %d", purged, rows)
		}
		enough := time.After(took)
		alone := reserves(b, s, e.ID, func() bool { <-enough; return false })
		b.ReportMetric(float64(alone.Microseconds()), "p99-alone-us")
		b.ReportMetric(float64(busy.Microseconds()), "p99-purging-us")
		b.ReportMetric(float64(busy)/float64(alone), "ratio")
		b.ReportMetric(float64(rows)/took.Seconds(), "purged/s")
	}
}

// reserves keeps eight reserves in flight for as long as the other says, and
// returns their 99th percentile.
func reserves(b *testing.B, s *postgres.Store, by records.ExecutorID, goesOn func() bool) time.Duration {
	b.Helper()
	var over atomic.Bool
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	prefix := records.NewToken()
	for w := range 8 {
		wg.Go(func() {
			var mine []time.Duration
			for n := 0; n == 0 || !over.Load(); n++ {
				r := reservation(by, fmt.Sprint(prefix, w, n))
				began := time.Now()
				if _, err := s.Reserve(b.Context(), r); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	for goesOn() {
	}
	over.Store(true)
	wg.Wait()
	slices.Sort(took)
	return took[len(took)*99/100]
}
