package takeover_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// ask is a request for a key that may be asked again anywhere.
func ask(key string) takeover.Request {
	return takeover.Request{
		Key:       records.Key{Realm: "shop", Principal: "alice", Key: key},
		Operation: "create-payment", Fingerprint: records.FingerprintOf("POST", key), Wait: 20 * time.Second,
		Terms: takeover.Terms{Reconciler: takeover.Reexecute},
	}
}

func created(body string) takeover.Completion {
	return takeover.Completion{Kind: takeover.Completed, Response: records.Response{
		Status: 201, Headers: []records.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(body),
	}}
}

// instant is work that completes at once and counts itself.
func instant(count *atomic.Int64, body string) takeover.Work {
	return func(context.Context) takeover.Completion {
		count.Add(1)
		return created(body)
	}
}

// held is work that says when it has begun and completes when told, or when
// its context ends.
type held struct {
	begun, finish chan struct{}
	once          sync.Once
	runs          atomic.Int64
}

func newHeld() *held { return &held{begun: make(chan struct{}), finish: make(chan struct{})} }

func (h *held) work(ctx context.Context) takeover.Completion {
	h.runs.Add(1)
	h.once.Do(func() { close(h.begun) })
	select {
	case <-h.finish:
		return created("held")
	case <-ctx.Done():
		return takeover.Completion{Reason: context.Cause(ctx).Error()}
	}
}

type answered struct {
	takeover.Answer
	err error
}

// do asks in the background.
func do(m *member, req takeover.Request, work takeover.Work) <-chan answered {
	got := make(chan answered, 1)
	go func() {
		a, err := m.Do(context.Background(), req, work)
		got <- answered{a, err}
	}()
	return got
}

func (a answered) check(t *testing.T, outcome takeover.OutcomeKind, body string) {
	t.Helper()
	if a.err != nil || a.Outcome != outcome {
		t.Fatalf("answer = %s, %v; want %s", a.Outcome, a.err, outcome)
	}
	if body != "" && (a.Record.Response == nil || string(a.Record.Response.Body) != body) {
		t.Fatalf("response = %+v, want body %q", a.Record.Response, body)
	}
}

func TestDo(t *testing.T) {
	t.Run("ExecutesOnceAndReplaysOnEveryNode", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.start(brisk(), "a", "b")
		var runs atomic.Int64
		(<-do(nodes[0], ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		(<-do(nodes[0], ask("k"), instant(&runs, "two"))).check(t, takeover.Replayed, "one")
		(<-do(nodes[1], ask("k"), instant(&runs, "three"))).check(t, takeover.Replayed, "one")
		if runs.Load() != 1 {
			t.Errorf("ran %d times", runs.Load())
		}
	})

	t.Run("ADuplicateOnAnotherNodeWaitsForTheOwner", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.start(brisk(), "a", "b")
		h := newHeld()
		var runs atomic.Int64
		first := do(nodes[0], ask("k"), h.work)
		<-h.begun
		second := do(nodes[1], ask("k"), instant(&runs, "second"))
		third := do(nodes[0], ask("k"), instant(&runs, "third"))
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-second).check(t, takeover.Waited, "held")
		(<-third).check(t, takeover.Waited, "held")
		if runs.Load() != 0 {
			t.Error("a duplicate ran")
		}
	})

	t.Run("AnotherRequestUnderTheKeyIsRefusedWhileTheFirstRuns", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.start(brisk(), "a", "b")
		h := newHeld()
		var runs atomic.Int64
		first := do(nodes[0], ask("k"), h.work)
		<-h.begun
		other := ask("k")
		other.Fingerprint = records.FingerprintOf("something else")
		for _, m := range nodes {
			(<-do(m, other, instant(&runs, ""))).check(t, takeover.Reused, "")
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		if runs.Load() != 0 {
			t.Error("another request ran")
		}
	})

	t.Run("AWaitThatEndsIsToldThatItRuns", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		nodes := f.start(brisk(), "a", "b")
		h := newHeld()
		first := do(nodes[0], ask("k"), h.work)
		<-h.begun
		impatient := ask("k")
		impatient.Wait = 0
		for _, m := range nodes {
			got := <-do(m, impatient, h.work)
			got.check(t, takeover.InProgress, "")
			if got.RetryAfter <= 0 {
				t.Error("no time to retry after")
			}
		}
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		if h.runs.Load() != 1 {
			t.Errorf("ran %d times", h.runs.Load())
		}
	})

	t.Run("AKilledOwnerIsOvertakenOnceByManyWaiters", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		a := f.launch(brisk(), "a", &gate{Store: f.open(t)})
		f.serving(a)
		nodes := append([]*member{a}, f.start(brisk(), "b", "c")...)
		f.serving(a)
		h := newHeld()
		do(nodes[0], ask("k"), h.work)
		<-h.begun
		var runs atomic.Int64
		var waiting []<-chan answered
		for i := range 20 {
			waiting = append(waiting, do(nodes[1+i%2], ask("k"), instant(&runs, "second")))
		}
		await(t, "both watch", func() bool { return nodes[1].Waiting() == 10 && nodes[2].Waiting() == 10 })
		f.die(nodes[0])
		took := 0
		for _, w := range waiting {
			got := <-w
			if got.Outcome == takeover.TookOver {
				took++
				got.check(t, takeover.TookOver, "second")
				continue
			}
			got.check(t, takeover.Waited, "second")
		}
		if took != 1 || runs.Load() != 1 {
			t.Errorf("%d took over, %d runs", took, runs.Load())
		}
	})
}
