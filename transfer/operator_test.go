package transfer_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// crossing is a store in which an operator wants a flow to end at the moment at
// which its owner suspends it.
type crossing struct {
	transfer.Store
	reason string
}

func (c crossing) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if m.To == records.FlowSuspended {
		if _, err := c.WantFlow(ctx, m.ID, records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: c.reason}); err != nil {
			return records.Flow{}, err
		}
	}
	return c.Store.MoveFlow(ctx, m)
}

// hangingUp are peers that do not answer, upon which who ordered something
// waits no longer.
type hangingUp struct {
	transfer.Peers
	hangUp func()
}

func (h hangingUp) Heed(context.Context, string, string) error {
	h.hangUp()
	return errors.New("not reached")
}

// TestOperator is about flows that an operator ends: their control plane, which
// has not asked for that, is told.
func TestOperator(t *testing.T) {
	t.Parallel()
	const why = "INC-42"
	for name, c := range map[string]struct {
		begin func(t *testing.T, r *rig, s flowStore)
	}{
		"WhileItMoves": {begin: func(_ *testing.T, r *rig, _ flowStore) { r.start("f", "d") }},
		"WhileItIsSuspended": {begin: func(t *testing.T, r *rig, _ flowStore) {
			r.start("f", "d")
			if status, code, _ := r.ask(http.MethodPost, "/f/suspend", `{"messageId":"m"}`); status != http.StatusOK {
				t.Fatalf("suspend: %d %s", status, code)
			}
		}},
		"OnceItsOwnerHasStoppedItAndDied": {begin: func(t *testing.T, _ *rig, s flowStore) { left(t, s, records.FlowSuspended, "") }},
		"WhoseOwnerDied":                  {begin: func(t *testing.T, _ *rig, s flowStore) { left(t, s, records.FlowStarted, "elsewhere") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s flowStore
			control := newControl(t)
			r := newRig(t, func(transfer.Task) (move.Source, error) { return held{nil}, nil }, func(p *transfer.Config) {
				s, p.ControlPlane, p.StrayEvery = p.Store.(flowStore), control.url, time.Hour
			})
			c.begin(t, r, s)
			if err := r.Terminate(t.Context(), "f", why); err != nil {
				t.Fatal(err)
			}
			if reason := r.becomes("f", "TERMINATED"); reason != why {
				t.Errorf("reason = %q", reason)
			}
			r.await("it is told", func() bool {
				return control.told("/f/dataflow/errored", `"state":"TERMINATED"`, `"error":"`+why+`"`) == 1
			})
			r.empty()
			r.await("nothing more is to be told", func() bool {
				n, err := s.WaitingCallbacks(t.Context(), 10)
				return err == nil && n == 0
			})
			if n := control.told(""); n != 1 {
				t.Errorf("it was told %d times", n)
			}
		})
	}
	t.Run("ByAWordInTheStoreThatItsOwnerFinds", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		var opened atomic.Int32
		control := newControl(t)
		r := newRig(t, func(transfer.Task) (move.Source, error) { return counted{held{nil}, &opened}, nil }, func(p *transfer.Config) {
			s, p.ControlPlane = p.Store.(flowStore), control.url
		})
		r.start("f", "d")
		r.await("it moves", func() bool { return opened.Load() == 1 })
		wish := records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: why}
		if _, err := s.WantFlow(t.Context(), "f", wish); err != nil {
			t.Fatal(err)
		}
		r.becomes("f", "TERMINATED")
		r.await("it is told", func() bool { return control.told("/f/dataflow/errored", why) == 1 })
	})
	t.Run("WhoDoesNotWaitIsToldThatItWillEnd", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		ctx, hangUp := context.WithCancel(t.Context())
		r := newRig(t, good, func(p *transfer.Config) {
			s, p.StrayEvery = p.Store.(flowStore), time.Hour
			p.Peers = hangingUp{p.Peers, hangUp}
		})
		left(t, s, records.FlowStarted, "elsewhere")
		if err := r.Terminate(ctx, "f", why); err != nil { // so that it is noted who has done that
			t.Errorf("terminate: %v", err)
		}
		if h, err := s.LoadFlow(t.Context(), "f"); err != nil || h.Flow.Wanted != records.FlowTerminated || h.Flow.WantedBy != records.FlowOperator {
			t.Errorf("flow = %+v, %v; want it to be ended", h.Flow, err)
		}
		if err := r.Terminate(ctx, "f", why); !errors.Is(err, context.Canceled) {
			t.Errorf("terminate by who has gone before: %v", err)
		}
	})
	t.Run("WhileItsOwnerSuspendsIt", func(t *testing.T) {
		t.Parallel()
		control := newControl(t)
		r := newRig(t, func(transfer.Task) (move.Source, error) { return held{nil}, nil }, func(p *transfer.Config) {
			p.Store, p.ControlPlane, p.StrayEvery = crossing{p.Store, why}, control.url, time.Hour
		})
		r.start("f", "d")
		if status, code, _ := r.ask(http.MethodPost, "/f/suspend", `{"messageId":"m"}`); status != http.StatusConflict {
			t.Errorf("suspend: %d %s, want a conflict with how it has ended", status, code)
		}
		if reason := r.becomes("f", "TERMINATED"); reason != why {
			t.Errorf("reason = %q", reason)
		}
		r.await("it is told", func() bool { return control.told("/f/dataflow/errored", why) == 1 })
		r.empty()
	})
	t.Run("IsNotWhoAskedIfTheControlPlaneDid", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		control := newControl(t)
		r := newRig(t, func(transfer.Task) (move.Source, error) { return held{nil}, nil }, func(p *transfer.Config) {
			s, p.ControlPlane = p.Store.(flowStore), control.url
		})
		r.start("f", "d")
		if status, code, _ := r.ask(http.MethodPost, "/f/terminate", `{"messageId":"m","reason":"no longer wanted"}`); status != http.StatusOK {
			t.Fatalf("terminate: %d %s", status, code)
		}
		if h, err := s.LoadFlow(t.Context(), "f"); err != nil || h.Callback != nil || h.Flow.State != records.FlowTerminated {
			t.Errorf("flow = %+v, %v; want it terminated without word of that", h, err)
		}
		if n := control.told(""); n != 0 {
			t.Errorf("it was told %d times", n)
		}
	})
}
