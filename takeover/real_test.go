package takeover_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// over runs a test over real sockets, with the machine's own time.
func over(t *testing.T, name string, test func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, newFleet(t))
	})
}

// TestSockets repeats the heart of the other tests with real listeners, real
// probes and links that fail.
func TestSockets(t *testing.T) {
	t.Parallel()
	over(t, "ADuplicateElsewhereWaitsForTheOwner", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b")
		h, first := begin(nodes[0], ask("k"))
		second, third := do(nodes[1], ask("k"), refuse(t)), do(nodes[0], ask("k"), refuse(t))
		f.await("both wait", func() bool { return nodes[0].Waiting() == 1 && nodes[1].calls.watches.Load() > 0 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-second).check(t, takeover.Waited, "held")
		(<-third).check(t, takeover.Waited, "held")
		(<-do(nodes[1], ask("k"), refuse(t))).check(t, takeover.Replayed, "held")
	})

	over(t, "AKilledOwnerIsOvertakenOnceByManyWaiters", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b", "c")
		f.attested(nodes...)
		_, _ = begin(nodes[0], ask("k"))
		var runs atomic.Int64
		var waiting []<-chan answered
		for i := range 100 {
			waiting = append(waiting, do(nodes[1+i%2], ask("k"), instant(&runs, "second")))
		}
		f.await("both watch", func() bool { return nodes[1].Waiting() == 50 && nodes[2].Waiting() == 50 })
		f.die(nodes[0])
		took := 0
		for _, w := range waiting {
			got := <-w
			if got.Outcome == takeover.TookOver {
				took++
				continue
			}
			got.check(t, takeover.Waited, "second")
		}
		if took != 1 {
			t.Errorf("%d took over", took)
		}
		ran(t, &runs, 1)
	})

	over(t, "ABrokenWatchOfALiveOwnerIsNoVerdict", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b")
		line := f.between(nodes[1], nodes[0])
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		for range 3 {
			before := nodes[1].calls.watches.Load()
			f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > before })
			line.set(cut)
			line.set(healthy)
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})

	for name, how := range map[string]fault{"Blackholed": blackhole, "Deaf": deaf, "Mute": mute} {
		over(t, "AnOwnerBehindALinkThatIs"+name+"AnswersThroughTheStore", func(t *testing.T, f *fleet) {
			nodes := f.start(brisk(), "a", "b")
			line := f.between(nodes[1], nodes[0])
			h, first := begin(nodes[0], ask("k"))
			waiting := do(nodes[1], patient("k"), refuse(t))
			f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
			line.set(how)
			f.await("b has tried to fence it", func() bool { return nodes[1].gate.Calls(recordstest.Fence) > 0 })
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
			(<-waiting).check(t, takeover.Waited, "held")
			nobodyFenced(t, nodes[0])
		})
	}

	over(t, "ASlowLinkChangesNothing", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b")
		f.between(nodes[1], nodes[0]).(*link).slow(50 * time.Millisecond)
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if n := nodes[1].gate.Calls(recordstest.Fence); n != 0 {
			t.Errorf("%d fences were tried", n)
		}
	})

	over(t, "AWitnessThatReachesTheSuspectProtectsIt", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b", "c")
		f.attested(nodes...)
		f.between(nodes[1], nodes[0]).set(cut)
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		f.await("b drops its suspicion", func() bool { return nodes[1].log.has("outcome=dropped") })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if n := nodes[1].gate.Calls(recordstest.Fence); n != 0 {
			t.Errorf("%d fences were tried", n)
		}
	})

	over(t, "AnObserverThatIsCutOffAbstains", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b", "c")
		f.attested(nodes...)
		f.isolate(nodes[1], blackhole, nodes[0], nodes[2])
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		f.await("b abstains", func() bool { return nodes[1].log.has("outcome=abstained") })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		nobodyFenced(t, nodes[0])
	})
}

// socketCases are those that need real sockets.
func socketCases(t *testing.T) {
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	var followed atomic.Int64
	for name, there := range map[string]http.Handler{
		"503": answer(http.StatusServiceUnavailable),
		"404": answer(http.StatusNotFound),
		"ARedirect": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				followed.Add(1)
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}),
		"ABareAccept": nil,
	} {
		over(t, "K48_"+name+"AtTheExecutorsURL", func(t *testing.T, f *fleet) {
			nodes := f.start(brisk(), "a", "b", "c")
			f.attested(nodes...)
			h, first := begin(nodes[0], ask("k"))
			if there != nil {
				nodes[0].calls.pretend(there)
			} else {
				for _, m := range nodes[1:] {
					f.between(m, nodes[0]).set(blackhole) // accepts, and says nothing
				}
			}
			waiting := do(nodes[1], patient("k"), refuse(t))
			f.await("b has tried to fence it", func() bool { return nodes[1].gate.Calls(recordstest.Fence) > 0 })
			want := map[bool]string{true: "verdict=silent", false: "verdict=down"}
			if nodes[1].log.has(want[false]) || !nodes[1].log.has(want[true]) {
				t.Error("it was taken for a refused connection")
			}
			close(h.finish)
			(<-first).check(t, takeover.Executed, "held")
			(<-waiting).check(t, takeover.Waited, "held")
			nobodyFenced(t, nodes[0])
			if n := followed.Load(); n != 0 {
				t.Errorf("the redirect was followed %d times", n)
			}
		})
	}

	over(t, "K45_RestartedAtOnceOnTheSamePort", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b")
		_, _ = begin(nodes[0], ask("k"))
		var runs atomic.Int64
		waiting := do(nodes[1], patient("k"), instant(&runs, "second"))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		f.die(nodes[0])
		again := f.reboot(nodes[0])
		(<-waiting).check(t, takeover.TookOver, "second")
		f.serving(again, nodes[1])
		if old := nodes[0].row(t); old.State != records.Fenced {
			t.Errorf("the old boot is %s", old.State)
		}
		ran(t, &runs, 1)
	})

	over(t, "K42_SIGTERMWhileAJobRuns", func(t *testing.T, f *fleet) {
		nodes := f.start(brisk(), "a", "b")
		h, first := begin(nodes[0], ask("k"))
		waiting := do(nodes[1], ask("k"), refuse(t))
		f.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
		nodes[0].Drain()
		beat := nodes[0].row(t).Beat
		f.await("it beats on while it drains", func() bool { r := nodes[0].row(t); return r.State == records.Draining && r.Beat > beat+5 })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if err := f.end(nodes[0]); err != nil || nodes[0].row(t).State != records.Gone {
			t.Errorf("Run = %v, the executor is %s", err, nodes[0].row(t).State)
		}
	})
}
