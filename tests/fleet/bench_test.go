//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// The owner's work is held in the ledger when it dies; the duplicates' answers
// at once, so that what is measured is the take-over.
var instant = fleet.Ask{Work: "instant", Reconciler: "reexecute"}

// BenchmarkTakeOver measures, each time on a fresh and warm fleet of three
// with default times, from the owner's end to a duplicate's answer on another
// node. An iteration is one sample.
func BenchmarkTakeOver(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, c := range []struct {
		name string
		play func(s *scene) time.Duration
	}{
		{"KilledWhileADuplicateWaits", func(s *scene) time.Duration {
			waiting := s.wait()
			s.kill()
			return s.until(waiting)
		}},
		{"KilledBeforeTheDuplicateComes", func(s *scene) time.Duration {
			s.kill()
			return s.until(s.duplicate())
		}},
		{"RestartedOnTheSameSlot", func(s *scene) time.Duration {
			s.kill()
			again := s.Restart(s.t, s.nodes[0])
			fleet.Await(s.t, "the restarted owner serves", func() bool {
				h, err := again.Health(s.t.Context())
				return err == nil && h.Ready
			})
			s.since = time.Now()
			return s.until(s.duplicate())
		}},
		{"StoppedWhileADuplicateWaits", func(s *scene) time.Duration {
			waiting := s.wait()
			s.nodes[0].Stop(s.t)
			s.since = time.Now()
			return s.until(waiting)
		}},
		{"StoppedBeforeTheDuplicateComes", func(s *scene) time.Duration {
			s.nodes[0].Stop(s.t)
			s.since = time.Now()
			return s.until(s.duplicate())
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			sample(b, func(t testing.TB) time.Duration {
				f := fleet.New(t, program, cluster.Database(t), fleet.Times{})
				return c.play(set(t, f, f.Start(t, "a", "b", "c")))
			})
		})
	}
}

// scene is a warm fleet whose first node has begun to work on the key k.
type scene struct {
	*fleet.Fleet
	t     testing.TB
	nodes []*fleet.Node
	since time.Time // the end of the first node
}

func set(t testing.TB, f *fleet.Fleet, nodes []*fleet.Node) *scene {
	t.Helper()
	hold := f.Ledger.Hold(fleet.BeforeEffect, "k")
	nodes[0].Call(t, "k", fleet.Ask{})
	hold.Await(t, 1)
	return &scene{Fleet: f, t: t, nodes: nodes}
}

// wait has a duplicate wait on the second node.
func (s *scene) wait() *fleet.Call { return gather(s.t, s.nodes[1:2], 1, instant)[0] }

// duplicate asks the second node now.
func (s *scene) duplicate() *fleet.Call { return s.nodes[1].Call(s.t, "k", instant) }

// kill ends the first node. The time counts from before the signal.
func (s *scene) kill() {
	s.since = time.Now()
	s.nodes[0].Kill()
}

// until waits for the answer and returns how long it took.
func (s *scene) until(c *fleet.Call) time.Duration {
	s.t.Helper()
	answer := c.Answer(s.t)
	took := time.Since(s.since)
	answer.Check(s.t, "taken_over", "instant under k")
	return took
}

// sample takes one sample an iteration and reports the median and the slowest,
// in milliseconds. What play makes ends with its sample.
func sample(b *testing.B, play func(t testing.TB) time.Duration) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		onStage(b, func(t testing.TB) { all = append(all, play(t)) })
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(all[len(all)/2]), "median-ms")
	b.ReportMetric(ms(all[len(all)-1]), "max-ms")
	b.ReportMetric(0, "ns/op") // of starting a fleet
}

// stage is one iteration of a benchmark: what is cleaned up after it does not
// wait for the others.
type stage struct {
	*testing.B
	ctx   context.Context
	after []func()
}

// Context ends before the clean-up.
func (s *stage) Context() context.Context { return s.ctx }

// Cleanup runs f when the iteration ends.
func (s *stage) Cleanup(f func()) { s.after = append(s.after, f) }

func onStage(b *testing.B, play func(t testing.TB)) {
	ctx, cancel := context.WithCancel(b.Context())
	s := &stage{B: b, ctx: ctx}
	defer func() {
		cancel()
		for _, f := range slices.Backward(s.after) {
			f()
		}
	}()
	play(s)
}

// BenchmarkCrowd kills the owner of a key for which duplicates wait on two
// nodes, and counts what that cost a node at most: questions to other nodes,
// and statements about records, from the first duplicate to the last answer.
func BenchmarkCrowd(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, each := range []int{5, 500} {
		b.Run(fmt.Sprintf("%dDuplicatesOnTwoNodes", 2*each), func(b *testing.B) {
			var spent expense
			executions := 0
			for b.Loop() {
				onStage(b, func(t testing.TB) {
					f := fleet.New(t, program, cluster.Database(t), fleet.Times{})
					s := set(t, f, f.Start(t, "a", "b", "c"))
					before := cost(t, s.nodes[1:])
					crowd := gather(t, s.nodes[1:], each, fleet.Ask{})
					s.kill()
					for _, c := range crowd {
						if got := c.Answer(t); got.Body != "entry 1 under k" {
							t.Fatalf("answer = %+v", got)
						}
					}
					executions = max(executions, len(f.Ledger.Entries("k")))
					for i, after := range cost(t, s.nodes[1:]) {
						spent.asked = max(spent.asked, after.asked-before[i].asked)
						spent.reads = max(spent.reads, after.reads-before[i].reads)
					}
				})
			}
			if executions != 1 {
				b.Errorf("%d executions", executions)
			}
			b.ReportMetric(float64(executions), "executions")
			b.ReportMetric(float64(spent.asked), "questions/node")
			b.ReportMetric(float64(spent.reads), "statements/node")
			b.ReportMetric(0, "ns/op")
		})
	}
}
