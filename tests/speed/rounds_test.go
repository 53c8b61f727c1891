//go:build unix

package speed_test

import (
	"cmp"
	"flag"
	"slices"
	"syscall"
	"testing"
	"time"
)

var turn = flag.Duration("turn", 400*time.Millisecond, "how long each side of a comparison runs in a round")

// side is one of those that are compared.
type side struct {
	name string
	*generator
	apart bool      // a rival that is compared with on its own: ratio-tuned
	rates []float64 // of each round: requests a second
	costs []float64 // of each round: microseconds of this process's CPU a request
}

// take runs the side for one turn.
func (s *side) take(b *testing.B) {
	b.Helper()
	before, begun := cpu(b), time.Now()
	rate := s.run(b, *turn)
	s.rates = append(s.rates, rate)
	s.costs = append(s.costs, float64((cpu(b)-before).Nanoseconds())/1e3/(rate*time.Since(begun).Seconds()))
}

// cpu is the processor time that this process has used. Unlike a rate it hardly
// changes with what else the machine does; it covers both ends of every
// connection, but no database.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// compare takes rounds: in each, every side runs for one turn, the first one
// moving up. The subject is the first; the others are what it is compared
// with, and the ratio is to the fastest of them.
func compare(b *testing.B, sides ...*side) {
	b.Helper()
	for _, s := range sides {
		s.run(b, *turn/8) // connections, plans, caches
	}
	round := 0
	for b.Loop() {
		for i := range sides {
			sides[(round+i)%len(sides)].take(b)
		}
		round++
	}
	if b.Failed() {
		return
	}
	for _, s := range sides {
		b.ReportMetric(median(s.rates), s.name+"/s")
		b.ReportMetric(median(s.costs), s.name+"-µs")
	}
	var rivals, apart []*side
	for _, s := range sides[1:] {
		if s.apart {
			apart = append(apart, s)
		} else {
			rivals = append(rivals, s)
		}
	}
	b.ReportMetric(ratio(sides[0], rivals), "ratio")
	if len(apart) > 0 {
		b.ReportMetric(ratio(sides[0], apart), "ratio-tuned")
	}
}

// ratio is the median, over the rounds, of the subject's rate to that of the
// fastest of its rivals.
func ratio(subject *side, rivals []*side) float64 {
	rival := slices.MaxFunc(rivals, func(x, y *side) int { return cmp.Compare(median(x.rates), median(y.rates)) })
	ratios := make([]float64, len(subject.rates))
	for i := range ratios {
		ratios[i] = subject.rates[i] / rival.rates[i]
	}
	return median(ratios)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
