package takeover_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

func leased() takeover.Config { return takeover.Config{Policy: records.PolicyLease} }

func TestRegister(t *testing.T) {
	t.Parallel()
	rule(t, "MakesAnActiveExecutorOfTheSlotAtTheURL", func(t *testing.T, f *fleet) {
		m := f.start(leased(), "a")[0]
		row := m.row(t)
		if row.Slot != "a" || row.URL != m.config.URL || row.State != records.Active || row.Policy != records.PolicyLease ||
			row.LeaseTTL != 15*time.Second || !row.PublicKey.Equal(m.Identity().Key.Public()) {
			t.Errorf("registered %+v", row)
		}
	})

	rule(t, "OutlastsAStoreThatIsAway", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.shut()
		m.serve()
		f.run(m)
		f.pass(time.Minute)
		if m.returned() || m.Status().State == records.Active {
			t.Fatalf("it is %s, returned %t", m.Status().State, m.returned())
		}
		m.gate.openAgain()
		f.serving(m)
	})

	rule(t, "CountsOnceWhenItsReplyIsLost", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.Once(recordstest.Register, recordstest.LostReply)
		m.serve()
		f.run(m)
		f.serving(m)
		all, err := m.gate.ListExecutors(t.Context())
		if err != nil || len(all) != 1 {
			t.Errorf("executors %v, %v", all, err)
		}
	})

	rule(t, "RefusesASlotWhoseHolderAnswers", func(t *testing.T, f *fleet) {
		for name, config := range map[string]takeover.Config{"probe": {}, "lease": leased()} {
			config.Slot = "slot " + name
			first := f.start(config, "first-"+name)[0]
			config.URL = ""
			second := f.launch(config, "second-"+name)
			if err := f.end(second); !errors.Is(err, takeover.ErrSlotInUse) {
				t.Errorf("%s: Run = %v, want ErrSlotInUse", name, err)
			}
			if first.row(t).State != records.Active || second.Status().State != records.Gone {
				t.Errorf("%s: the first is %s, the second %s", name, first.row(t).State, second.Status().State)
			}
		}
	})

	rule(t, "RefusesASlotWhoseHolderAWitnessReaches", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		second := f.prepare(takeover.Config{Slot: "a"}, "second")
		f.between(second, nodes[0]).set(cut)
		second.serve()
		f.run(second)
		if err := f.end(second); !errors.Is(err, takeover.ErrSlotInUse) {
			t.Errorf("Run = %v, want ErrSlotInUse", err)
		}
		nobodyFenced(t, nodes[0])
	})

	rule(t, "RefusesAHolderThatOnlyBeats", func(t *testing.T, f *fleet) {
		first := f.start(takeover.Config{}, "a")[0]
		first.hangUp()
		second := f.launch(takeover.Config{Slot: "a"}, "second")
		f.pass(90 * time.Second)
		if second.Status().State == records.Active {
			t.Error("it replaced a boot that beats")
		}
		nobodyFenced(t, first)
	})

	rule(t, "RefusesAURLThatAnswersAsSomebodyElse", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		// b advertises the address of a.
		b := f.prepare(takeover.Config{URL: a.config.URL}, "b")
		f.run(b)
		if err := f.end(b); !errors.Is(err, takeover.ErrURLTaken) {
			t.Errorf("Run = %v, want ErrURLTaken", err)
		}
		if all, err := a.gate.ListExecutors(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("executors %v, %v", all, err)
		}
	})

	rule(t, "ReplacesADeadBootAtItsOwnURLAtOnce", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.die(nodes[0])
		since := time.Now()
		again := f.reboot(nodes[0])
		f.await("it has registered", func() bool { return again.registered(t) })
		if took := time.Since(since); took > time.Second {
			t.Errorf("it took %s", took)
		}
		if old := again.executor(t, nodes[0].Identity().Executor); old.State != records.Fenced || old.FencedBy != again.Identity().Executor {
			t.Errorf("the old boot is %s, fenced by %s", old.State, old.FencedBy)
		}
	})

	rule(t, "ReplacesADeadBootAtAnotherURLOnceConfirmed", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.attested(nodes...)
		f.die(nodes[0])
		since := time.Now()
		again := f.launch(takeover.Config{Slot: "a"}, "elsewhere")
		f.await("it has registered", func() bool { return again.registered(t) })
		if took := time.Since(since); took < 300*time.Millisecond || took > 2*time.Second {
			t.Errorf("it took %s, want the confirmation of a refused connection", took)
		}
		if old := again.executor(t, nodes[0].Identity().Executor); old.State != records.Fenced {
			t.Errorf("the old boot is %s", old.State)
		}
	})

	rule(t, "ReplacesADeadBootOfPolicyLeaseOnlyAfterItsLease", func(t *testing.T, f *fleet) {
		for _, url := range []string{"same", "other"} {
			config := leased()
			config.Slot = url
			old := f.start(config, "old-"+url)[0]
			f.die(old)
			beat := old.row(t)
			if url == "same" {
				config.URL = old.config.URL
			}
			again := f.launch(config, "new-"+url)
			f.await("it has registered", func() bool { return again.registered(t) })
			if fenced := again.executor(t, old.Identity().Executor); fenced.FencedAt.Sub(beat.HeartbeatAt) < fenced.LeaseTTL {
				t.Errorf("%s URL: fenced %s after its last heartbeat", url, fenced.FencedAt.Sub(beat.HeartbeatAt))
			}
		}
	})
}

func TestAttest(t *testing.T) {
	t.Parallel()
	rule(t, "MakesANodeReady", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		// b listens to nobody yet.
		b := f.prepare(takeover.Config{}, "b")
		f.run(b)
		f.pass(time.Minute)
		if s := b.Status(); s.State == records.Active || s.Serving() {
			t.Fatalf("it is %s before a peer has reached it", s.State)
		}
		(<-do(b, ask("k"), refuse(t))).fails(t, takeover.ErrNotServing)
		b.serve()
		f.serving(a, b)
		if b.row(t).AttestedAt.IsZero() {
			t.Error("ready without proof")
		}
	})

	rule(t, "ByItselfServesButProvesNothing", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		f.pass(90 * time.Second)
		if row := a.row(t); !row.AttestedAt.IsZero() {
			t.Error("it is attested by itself")
		}
		b := f.launch(takeover.Config{}, "b")
		f.serving(a, b)
		f.attested(a, b)
	})

	rule(t, "AsksNoBootOfItsOwnSlot", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		f.die(a)
		since := time.Now()
		again := f.reboot(a)
		f.await("it serves", func() bool { return again.Status().State == records.Active })
		if took := time.Since(since); took > 500*time.Millisecond {
			t.Errorf("it took %s: the dead boot was taken for a peer", took)
		}
	})

	rule(t, "OfALoneNodeThatCannotReachItselfWaits", func(t *testing.T, f *fleet) {
		a := f.prepare(takeover.Config{}, "a")
		f.run(a)
		f.pass(time.Minute)
		if a.Status().State == records.Active {
			t.Fatal("it serves")
		}
		a.serve()
		f.serving(a)
	})

	rule(t, "IsRepeated", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		f.attested(nodes...)
		first := nodes[0].row(t).AttestedAt
		f.pass(70 * time.Second)
		if again := nodes[0].row(t).AttestedAt; again.Sub(first) < 50*time.Second {
			t.Errorf("attested %s later", again.Sub(first))
		}
	})

	rule(t, "IsTakenBackWhenNoPeerGetsThrough", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b", "c")
		f.attested(nodes...)
		for _, peer := range nodes[1:] {
			f.between(peer, nodes[0]).set(blackhole)
		}
		f.await("it is taken back", func() bool { return nodes[0].row(t).AttestedAt.IsZero() })
		if nodes[0].Status().State != records.Active {
			t.Errorf("the node is %s: it still serves whom it can", nodes[0].Status().State)
		}
		for _, peer := range nodes[1:] {
			f.between(peer, nodes[0]).set(healthy)
		}
		f.await("it is given again", func() bool { return !nodes[0].row(t).AttestedAt.IsZero() })
	})

	rule(t, "OutlastsAStoreThatRefusesIt", func(t *testing.T, f *fleet) {
		a := f.start(takeover.Config{}, "a")[0]
		b := f.prepare(takeover.Config{}, "b")
		b.gate.shut(recordstest.Attest)
		b.serve()
		f.run(b)
		f.pass(20 * time.Second)
		if b.Status().State == records.Active {
			t.Error("ready though the store has no proof")
		}
		b.gate.openAgain()
		f.serving(a, b)
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	rule(t, "LeavesWhenDrained", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		if err := f.gone(m); err != nil {
			t.Errorf("Run = %v", err)
		}
		if state := m.row(t).State; state != records.Gone {
			t.Errorf("the executor is %s", state)
		}
		(<-do(m, ask("k"), refuse(t))).fails(t, takeover.ErrNotServing)
	})

	rule(t, "LeavesAtOnceWhenStopped", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		h, first := begin(m, askOnce("k"))
		since := time.Now()
		m.stop()
		if err := f.end(m); err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(since); took > time.Second {
			t.Errorf("it took %s", took)
		}
		if !h.ended(takeover.ErrStopped) {
			t.Error("the work was not told why it ends")
		}
		(<-first).check(t, takeover.Executed, "")
		stands(t, m, askOnce("k"), records.Unknown)
		if state := m.row(t).State; state != records.Gone {
			t.Errorf("the executor is %s", state)
		}
	})

	rule(t, "ReturnsThoughTheStoreNeverComesBack", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		_, first := begin(m, askOnce("k"))
		m.gate.shut()
		m.stop()
		if err := f.end(m); err == nil {
			t.Error("Run = nil with a record that could not be settled")
		}
		(<-first).check(t, takeover.InProgress, "") // it was begun, and is left to others
	})

	rule(t, "ReturnsThoughWorkNeverDoes", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{DrainTimeout: time.Minute}, "a")[0]
		h := newHeld()
		first := do(m, askOnce("k"), h.stubborn)
		<-h.begun
		m.stop()
		if err := f.end(m); err == nil {
			t.Error("Run = nil while work runs")
		}
		(<-first).check(t, takeover.Executed, "")
		stands(t, m, askOnce("k"), records.Unknown)
		close(h.finish)
	})

	rule(t, "IsNotHeldUpByASweep", func(t *testing.T, f *fleet) {
		var begun atomic.Int64
		config := takeover.Config{}
		config.Recover = func(records.Record) (takeover.Terms, takeover.Work, bool) {
			return takeover.Terms{Reconciler: pendingForever(&begun)}, nil, true
		}
		nodes := f.start(takeover.Config{}, "a", "b")
		_, _ = begin(nodes[0], askOnce("k"))
		f.die(nodes[0])
		c := f.launch(config, "c")
		f.serving(c)
		if _, err := nodes[1].gate.Store.FenceByOperator(t.Context(), records.Condemnation{Executor: nodes[0].Identity().Executor, Actor: "test", Reason: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		f.await("c sweeps", func() bool { return begun.Load() > 0 })
		since := time.Now()
		c.stop()
		if err := f.end(c); err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(since); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})

	rule(t, "ReturnsTheErrorOfAFailedStart", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.Once(recordstest.Register, recordstest.Fault{Err: records.ErrCorrupt})
		m.serve()
		f.run(m)
		if err := f.end(m); !errors.Is(err, records.ErrCorrupt) {
			t.Errorf("Run = %v", err)
		}
	})

	rule(t, "StopsWhileItRegisters", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.shut()
		m.serve()
		f.run(m)
		f.pass(time.Minute)
		m.stop()
		if err := f.end(m); err == nil {
			t.Error("Run = nil, though it never registered")
		}
	})

	rule(t, "DrainsWhileItRegisters", func(t *testing.T, f *fleet) {
		m := f.prepare(takeover.Config{}, "a")
		m.gate.shut()
		m.serve()
		f.run(m)
		f.pass(time.Minute)
		m.Drain()
		if err := f.end(m); err != nil {
			t.Errorf("Run = %v, though it was told to leave", err)
		}
	})
}
