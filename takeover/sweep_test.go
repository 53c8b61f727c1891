package takeover_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// knowing recovers operations of one name as told.
func knowing(operation string, terms takeover.Terms, work takeover.Work) takeover.Config {
	return takeover.Config{Recover: func(r records.Record) (takeover.Terms, takeover.Work, bool) {
		return terms, work, r.Operation == operation
	}}
}

// leaveBehind makes a node that dies with n records in progress, of which
// nobody will ask again.
func leaveBehind(f *fleet, n int, change func(i int, req *takeover.Request)) []takeover.Request {
	f.t.Helper()
	a := f.start(takeover.Config{}, "dead")[0]
	var all []takeover.Request
	for i := range n {
		req := ask(fmt.Sprint(i))
		if change != nil {
			change(i, &req)
		}
		orphan(f.t, a, req)
		all = append(all, req)
	}
	f.die(a)
	f.fence(a)
	return all
}

func TestSweep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		terms takeover.Terms
		work  bool
		want  records.State
	}{
		"FinalizesWhatWasApplied": {takeover.Terms{Reconciler: takeover.ReconcilerFunc(
			func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return takeover.FoundApplied(created("found").Response), nil
			})}, false, records.Finalized},
		"ReleasesWhatWasNotApplied":         {takeover.Terms{Reconciler: takeover.Reexecute}, false, records.Released},
		"ExecutesWhatCanBeRepeated":         {takeover.Terms{Reconciler: takeover.Reexecute}, true, records.Finalized},
		"MarksUnknownWhatNobodyCanTell":     {takeover.Terms{}, true, records.Unknown},
		"MarksUnknownWhatNobodyCanTellOrDo": {takeover.Terms{}, false, records.Unknown},
	} {
		rule(t, name, func(t *testing.T, f *fleet) {
			left := leaveBehind(f, 3, nil)
			var runs atomic.Int64
			var work takeover.Work
			if c.work {
				work = instant(&runs, "swept")
			}
			m := f.start(knowing("create-payment", c.terms, work), "a")[0]
			for _, req := range left {
				f.await("it is swept", func() bool { return m.record(t, req).State == c.want })
			}
			if c.work && c.want == records.Finalized {
				ran(t, &runs, 3)
			} else {
				ran(t, &runs, 0)
			}
		})
	}

	rule(t, "HandsTheStoredRequestToTheWork", func(t *testing.T, f *fleet) {
		leaveBehind(f, 1, func(_ int, req *takeover.Request) { req.Stored, req.Resource = []byte("as stored"), "42" })
		seen := make(chan takeover.Claim, 1)
		m := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, func(ctx context.Context) takeover.Completion {
			claim, _ := takeover.ClaimFrom(ctx)
			seen <- claim
			return created("swept")
		}), "a")[0]
		claim := <-seen
		if r := claim.Record; string(r.Request) != "as stored" || r.Resource != "42" || r.Executor != m.Identity().Executor {
			t.Errorf("claimed %+v", r)
		}
	})

	rule(t, "OfAGoneExecutorToo", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "gone")[0]
		orphan(t, a, ask("k"))
		if err := f.gone(a); err != nil {
			t.Fatal(err)
		}
		a.hangUp()
		m := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, nil), "a")[0]
		f.await("it is swept", func() bool { return m.record(t, ask("k")).State == records.Released })
	})

	rule(t, "PagesPastWhatItDoesNotKnow", func(t *testing.T, f *fleet) {
		config := knowing("known", takeover.Terms{Reconciler: takeover.Reexecute}, nil)
		config.SweepBatch = 3
		left := leaveBehind(f, 40, func(i int, req *takeover.Request) {
			if i%10 == 0 {
				req.Operation = "known"
			}
		})
		m := f.start(config, "a")[0]
		for i, req := range left {
			if i%10 == 0 {
				f.await("it is swept", func() bool { return m.record(t, req).State == records.Released })
			}
		}
		f.pass(time.Minute)
		for i, req := range left {
			if i%10 != 0 {
				stands(t, m, req, records.InProgress)
			}
		}
	})

	rule(t, "TakesOverAtMostABatchATime", func(t *testing.T, f *fleet) {
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, nil)
		config.SweepBatch = 5
		leaveBehind(f, 23, nil)
		m := f.start(config, "a")[0]
		released := func() int { return f.count(settled, func(e event) bool { return e.state == records.Released }) }
		for want := 5; want < 23; want += 5 {
			f.await("a batch", func() bool { return released() >= want })
			f.pass(10 * time.Second) // less than the shortest time between two sweeps
			if n := released(); n != want {
				t.Fatalf("%d are swept, want %d", n, want)
			}
		}
		f.await("the rest", func() bool { return released() == 23 })
		if n := m.Status().InProgress; n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})

	rule(t, "RunsFewAtOnce", func(t *testing.T, f *fleet) {
		leaveBehind(f, 12, nil)
		var now, most atomic.Int64
		m := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, func(context.Context) takeover.Completion {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(10 * time.Second)
			now.Add(-1)
			return created("swept")
		}), "a")[0]
		f.await("all are swept", func() bool { return f.count(settled, func(event) bool { return true }) == 12 })
		if most.Load() > 4 {
			t.Errorf("%d at once", most.Load())
		}
		_ = m
	})

	rule(t, "OnManyNodesRunsEachRecordOnce", func(t *testing.T, f *fleet) {
		left := leaveBehind(f, 20, nil)
		var runs atomic.Int64
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "swept"))
		nodes := f.start(config, "a", "b", "c")
		for _, req := range left {
			f.await("it is swept", func() bool { return nodes[0].record(t, req).State == records.Finalized })
		}
		f.pass(time.Minute)
		ran(t, &runs, 20)
	})

	rule(t, "NotOnADrainingNode", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		b := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, refuse(t)), "b")[0]
		busy, first := begin(b, ask("busy"))
		b.Drain()
		f.await("it drains", func() bool { return b.row(t).State == records.Draining })
		orphan(t, a, ask("k"))
		orphans := b.gate.Calls(recordstest.Orphans)
		f.die(a)
		f.fence(a)
		f.pass(time.Minute)
		stands(t, b, ask("k"), records.InProgress)
		if n := b.gate.Calls(recordstest.Orphans) - orphans; n != 0 {
			t.Errorf("it looked %d times", n)
		}
		close(busy.finish)
		(<-first).check(t, takeover.Executed, "held")
	})

	rule(t, "GoesOnAfterAStoreOutage", func(t *testing.T, f *fleet) {
		left := leaveBehind(f, 3, nil)
		m := f.prepare(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, nil), "a")
		m.gate.shut(recordstest.Orphans, recordstest.InProgress, recordstest.TakeOver)
		m.serve()
		f.run(m)
		f.serving(m)
		f.pass(time.Minute)
		m.gate.openAgain()
		for _, req := range left {
			f.await("it is swept", func() bool { return m.record(t, req).State == records.Released })
		}
	})

	rule(t, "OfAPoisonedRecordEndsUnknown", func(t *testing.T, f *fleet) {
		left := leaveBehind(f, 1, nil)
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, nil)
		var runs atomic.Int64
		config.Takeovers = 1
		config.Recover = func(records.Record) (takeover.Terms, takeover.Work, bool) {
			return takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "swept"), true
		}
		a := f.prepare(takeover.Config{}, "overtaker")
		a.serve()
		f.run(a)
		f.serving(a)
		r := a.record(t, left[0])
		for range 2 { // two executors took it over and died
			next, err := a.gate.Store.TakeOver(t.Context(), records.TakeOver{
				ID: r.ID, From: r.Fence(), By: a.Identity().Executor, Attempt: records.NewToken(),
			})
			if err != nil {
				t.Fatal(err)
			}
			r = next
		}
		f.die(a)
		f.fence(a)
		m := f.start(config, "a")[0]
		f.await("it is swept", func() bool { return m.record(t, left[0]).State == records.Unknown })
		ran(t, &runs, 0)
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	rule(t, "DeletesWhatHasExpiredAStatementAtATime", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{PurgeBatch: 4, MemoryBytes: -1}, "a")[0]
		var runs atomic.Int64
		for i := range 10 {
			req := ask(fmt.Sprint(i))
			req.Terms.Retention = time.Minute
			(<-do(m, req, instant(&runs, "one"))).check(t, takeover.Executed, "one")
		}
		long := ask("long")
		<-do(m, long, instant(&runs, "long"))
		running := ask("running")
		running.Terms.WorkTimeout = time.Hour
		held, first := begin(m, running)
		f.await("all are purged", func() bool {
			n := 0
			for _, e := range f.of(purged) {
				n += e.count
			}
			return n == 10
		})
		stands(t, m, long, records.Finalized)
		stands(t, m, running, records.InProgress)
		(<-do(m, ask("0"), instant(&runs, "again"))).check(t, takeover.Executed, "again")
		close(held.finish)
		<-first
	})

	rule(t, "KeepsInProgressRecordsForever", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{
			Heartbeat: time.Minute, StatementTimeout: time.Minute, LeaseTTL: 10 * time.Minute, ProbeBudget: 10 * time.Minute,
			SweepEvery: time.Hour, PurgeEvery: 10 * time.Minute,
		}, "a")[0]
		req := ask("k")
		req.Terms.Retention, req.Terms.WorkTimeout = time.Second, 100*time.Hour
		h, first := begin(m, req)
		f.pass(3 * time.Hour)
		stands(t, m, req, records.InProgress)
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
	})
}
