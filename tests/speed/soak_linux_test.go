package speed_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

var (
	soakFor   = flag.Duration("soak", 5*time.Second, "how long `BenchmarkSoak` lasts; the full one is 10m")
	soakStore = flag.String("soak.store", "postgres", "store under BenchmarkSoak: postgres, or sqlite")
)

const (
	// soakKeys a second are a million in ten minutes.
	soakKeys = 1_000_000.0 / 600
	// soakReplays of a hundred requests repeat a key that was answered before.
	soakReplays = 20
	// soakWorkers send at once.
	soakWorkers = 32
	// soakFloor is what a short soak may grow to whatever it began with: it ends
	// before what the node keeps on purpose, 64 MiB of records that can be
	// replayed without the store, has filled.
	soakFloor = 200 * megabyte
)

// BenchmarkSoak has a gateway execute fresh keys at the pace of a million in
// ten minutes, with replays of old ones among them, and fails if the process
// needs more than a tenth more memory at the end than after a fifth of the
// time. Both are medians of the samples of a twentieth of the time.
func BenchmarkSoak(b *testing.B) {
	for b.Loop() {
		soak(b)
	}
}

func soak(b *testing.B) {
	store := "sqlite:" + filepath.Join(b.TempDir(), "probate.db")
	if *soakStore == "postgres" {
		store = postgrestest.Start(b, postgrestest.Options{Fsync: true}).Database(b)
	}
	n := serve(b, store, "http://"+listen(b, http.HandlerFunc(pay)))
	s := &soaking{address: n.Spec.Public, total: int64(soakKeys * soakFor.Seconds()), begun: time.Now()}
	ended := make(chan struct{})
	var workers sync.WaitGroup
	for i := range soakWorkers {
		workers.Go(func() { s.work(b, i) })
	}
	go func() {
		workers.Wait()
		close(ended)
	}()
	samples := s.sample(b, n.Pid(), ended)
	took := time.Since(s.begun)
	if b.Failed() {
		return
	}
	fifth := around(samples, 0.2)
	end := around(samples, 1)
	b.ReportMetric(float64(s.executed.Load()+s.replayed.Load())/took.Seconds(), "req/s")
	b.ReportMetric(float64(s.executed.Load()), "keys")
	b.ReportMetric(float64(s.replayed.Load()), "replays")
	b.ReportMetric(float64(fifth)/megabyte, "MB-early")
	b.ReportMetric(float64(end)/megabyte, "MB-end")
	b.ReportMetric(float64(slices.Max(samples))/megabyte, "MB-most")
	b.ReportMetric(float64(end)/float64(fifth), "end/early")
	room := 1.1 * float64(fifth)
	if *soakFor < 10*time.Minute {
		room = max(room, soakFloor)
	}
	if float64(end) > room {
		b.Errorf("resident memory grew from %d to %d MB", fifth/megabyte, end/megabyte)
	}
	b.Logf("MB, from the first to the last: %d", thinned(samples))
}

// soaking is a soak under way.
type soaking struct {
	address string
	total   int64 // keys
	begun   time.Time

	begunKeys          atomic.Int64
	executed, replayed atomic.Int64
}

// work sends fresh keys when they are due, and old ones in between.
func (s *soaking) work(t testing.TB, worker int) {
	c, err := dial(t.Context(), s.address, true)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.conn.Close()
	first := int64(worker) << 32
	mine := int64(0)
	for !t.Failed() {
		if mine > 0 && rand.IntN(100) < soakReplays {
			if err := c.exchange(keyOf('s', first+rand.Int64N(mine)), []byte("Idempotency-Status: replayed\r\n")); err != nil {
				t.Error(err)
				return
			}
			s.replayed.Add(1)
			continue
		}
		due := s.begunKeys.Add(1) - 1
		if due >= s.total {
			return
		}
		if early := time.Until(s.begun.Add(time.Duration(float64(due) / soakKeys * float64(time.Second)))); early > 0 {
			<-time.After(early)
		}
		if err := c.exchange(keyOf('s', first+mine), []byte("Idempotency-Status: executed\r\n")); err != nil {
			t.Error(err)
			return
		}
		mine++
		s.executed.Add(1)
	}
}

// sample looks at the process's memory until the load has ended.
func (s *soaking) sample(t testing.TB, pid int, ended <-chan struct{}) []int64 {
	tick := time.NewTicker(max(*soakFor/1200, 5*time.Millisecond))
	defer tick.Stop()
	samples := []int64{resident(t, pid)}
	for {
		select {
		case <-tick.C:
			samples = append(samples, resident(t, pid))
		case <-ended:
			return append(samples, resident(t, pid))
		}
	}
}

// around is the median of the samples of the twentieth that ends there.
func around(samples []int64, part float64) int64 {
	end := max(int(part*float64(len(samples))), 1)
	window := slices.Clone(samples[max(end-len(samples)/20, 0):end])
	if len(window) == 0 {
		return samples[end-1]
	}
	slices.Sort(window)
	return window[len(window)/2]
}

// thinned are twenty of the samples, in megabytes.
func thinned(samples []int64) []int64 {
	var few []int64
	for i := range 20 {
		few = append(few, samples[i*(len(samples)-1)/19]/megabyte)
	}
	return few
}
