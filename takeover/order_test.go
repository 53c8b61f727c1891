package takeover_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// uncertain is work of which nobody knows what came of it.
func uncertain(context.Context) takeover.Completion { return takeover.Completion{} }

// settledUnknown is a living node on which a record has ended unknown, and
// knows this reconciler now.
func settledUnknown(f *fleet, req takeover.Request, reconcile takeover.ReconcilerFunc) (*member, records.Record) {
	f.t.Helper()
	config := knowing("create-payment", takeover.Terms{Reconciler: reconcile}, nil)
	m := f.start(config, "a")[0]
	req.Terms.Reconciler = nil
	<-do(m, req, uncertain)
	return m, stands(f.t, m, req, records.Unknown)
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finding func() (takeover.Finding, error)
		kind    takeover.FindingKind
		want    records.State
	}{
		"AppliedIsFinalized":        {applied("found"), takeover.Applied, records.Finalized},
		"NotAppliedFreesTheKey":     {notApplied, takeover.NotApplied, records.Released},
		"UndecidableRemainsUnknown": {undecidable, takeover.Undecidable, records.Unknown},
	} {
		rule(t, name, func(t *testing.T, f *fleet) {
			s := &findings{all: []func() (takeover.Finding, error){pending(time.Second), c.finding}}
			req := ask("k")
			m, r := settledUnknown(f, req, s.Reconcile)
			came, err := m.Reconcile(t.Context(), r.ID, r.Epoch)
			if err != nil || !came.Claimed || !came.Asked || !came.Over || came.Finding != c.kind || came.Record.State != c.want {
				t.Errorf("%+v, %v", came, err)
			}
			if now := stands(t, m, req, c.want); now.Epoch != r.Epoch+1 {
				t.Errorf("epoch %d after %d", now.Epoch, r.Epoch)
			}
			if len(s.asked) != 2 {
				t.Errorf("asked %d times", len(s.asked))
			}
		})
	}

	rule(t, "OfADeadExecutorExecutesNothing", func(t *testing.T, f *fleet) {
		var runs atomic.Int64
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "swept"))
		config.SweepEvery = time.Hour
		nodes := []*member{f.start(takeover.Config{}, "a")[0], f.start(config, "b")[0]}
		req := ask("k")
		_, _ = begin(nodes[0], req)
		f.die(nodes[0])
		r := nodes[1].record(t, req)
		came, err := nodes[1].Reconcile(t.Context(), r.ID, r.Epoch)
		if err != nil || !came.Over || came.Record.State != records.Released {
			t.Errorf("%+v, %v", came, err)
		}
		ran(t, &runs, 0)
		if s := nodes[1].executor(t, nodes[0].Identity().Executor).State; s != records.Fenced {
			t.Errorf("the dead one is %s", s)
		}
	})

	rule(t, "OfALivingOwnerClaimsNothing", func(t *testing.T, f *fleet) {
		nodes := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, nil), "a", "b")
		req := ask("k")
		work, first := begin(nodes[0], req)
		r := nodes[1].record(t, req)
		for _, m := range nodes {
			came, err := m.Reconcile(t.Context(), r.ID, r.Epoch)
			if err != nil || came.Claimed || came.Asked || came.Record.State != records.InProgress {
				t.Errorf("%s: %+v, %v", m.name, came, err)
			}
		}
		close(work.finish)
		<-first
		nobodyFenced(t, nodes[1])
	})

	rule(t, "AsksAboutWhatIsOverTheLimit", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "x", "y", "z")
		req := ask("k")
		orphan(t, nodes[0], req)
		config := knowing("create-payment", takeover.Terms{Reconciler: takeover.ReconcilerFunc(
			func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return applied("found")()
			})}, nil)
		config.Takeovers, config.SweepEvery = 1, time.Hour
		for i, m := range nodes[:2] {
			f.die(m)
			f.fence(m)
			r := nodes[2].record(t, req)
			if i == 0 {
				take := records.TakeOver{ID: r.ID, From: r.Fence(), By: nodes[1].Identity().Executor, Attempt: records.NewToken()}
				if _, err := nodes[1].gate.Store.TakeOver(t.Context(), take); err != nil {
					t.Fatal(err)
				}
			}
		}
		m := f.start(config, "a")[0]
		r := m.record(t, req)
		if came, err := m.Reconcile(t.Context(), r.ID, r.Epoch); err != nil || came.Record.State != records.Finalized || came.Record.Takeovers <= config.Takeovers {
			t.Errorf("%+v, %v", came, err)
		}
	})

	rule(t, "GoesOnWithoutTheOperator", func(t *testing.T, f *fleet) {
		s := &findings{all: []func() (takeover.Finding, error){pending(10 * time.Second), applied("found")}}
		req := ask("k")
		m, r := settledUnknown(f, req, s.Reconcile)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		came, err := m.Reconcile(ctx, r.ID, r.Epoch)
		if err != nil || !came.Claimed || came.Over || came.Finding != takeover.Pending || came.Record.State != records.InProgress {
			t.Errorf("%+v, %v", came, err)
		}
		f.await("it is finalized", func() bool { return m.record(t, req).State == records.Finalized })
	})

	rule(t, "RefusesWhatItMayNot", func(t *testing.T, f *fleet) {
		req := ask("k")
		m, r := settledUnknown(f, req, func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			t.Error("asked")
			return takeover.Finding{}, nil
		})
		done := ask("done")
		(<-do(m, done, instant(new(atomic.Int64), "done"))).check(t, takeover.Executed, "done")
		foreign := askOnce("foreign")
		foreign.Operation = "unheard-of"
		<-do(m, foreign, uncertain)
		for name, q := range map[string]struct {
			id    records.ID
			epoch int64
			want  error
		}{
			"another epoch": {r.ID, r.Epoch + 1, records.ErrFenced},
			"finalized":     {done.Key.ID(), m.record(t, done).Epoch, records.ErrFenced},
			"no record":     {ask("none").Key.ID(), 1, records.ErrNotFound},
			"no route":      {foreign.Key.ID(), m.record(t, foreign).Epoch, takeover.ErrNoRoute},
		} {
			if _, err := m.Reconcile(t.Context(), q.id, q.epoch); !errors.Is(err, q.want) {
				t.Errorf("%s: %v, want %v", name, err, q.want)
			}
		}
		if err := f.gone(m); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Reconcile(t.Context(), r.ID, r.Epoch); !errors.Is(err, takeover.ErrNotServing) {
			t.Errorf("after its end: %v", err)
		}
	})

	rule(t, "RefusesWhereNobodyCanTell", func(t *testing.T, f *fleet) {
		m := f.start(knowing("create-payment", takeover.Terms{}, nil), "a")[0]
		req := askOnce("k")
		<-do(m, req, uncertain)
		r := stands(t, m, req, records.Unknown)
		if _, err := m.Reconcile(t.Context(), r.ID, r.Epoch); !errors.Is(err, takeover.ErrNoReconciler) {
			t.Error(err)
		}
		stands(t, m, req, records.Unknown)
	})
}
