package takeover_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// TestReason: whoever has to find out about an unknown outcome is told why
// nobody could tell.
func TestReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finds takeover.ReconcilerFunc // nil: there is none
		want  string
	}{
		"WithoutAReconciler": {nil, "no reconciler"},
		"WhatItSaid": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundUndecidable("two orders look like this one"), nil
		}, "undecidable: two orders look like this one"},
		"ItsError": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundNotApplied(), errors.New("ledger is down")
		}, "until the work deadline; the last answer was pending: ledger is down"},
		"ItsPanic": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			panic("nil map")
		}, "reconciler panicked: nil map"},
		"ThatItContradictsItself": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.Finding{Kind: takeover.NotApplied, Response: created("it").Response}, nil
		}, "not_applied with a response"},
		"ThatItSaysNothingKnown": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.Finding{Kind: 9}, nil
		}, "finding 9 is none"},
		"ThatAnAppliedResponseCannotBe": {func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundApplied(records.Response{}), nil
		}, "status"},
		"ThatAQueryFindsNothingKnown": {func(ctx context.Context, r records.Record, req takeover.Request) (takeover.Finding, error) {
			return takeover.Asking(perhaps{}).Reconcile(ctx, r, req)
		}, "is none of applied"},
		"ThatItCameTooLate": {func(ctx context.Context, _ records.Record, _ takeover.Request) (takeover.Finding, error) {
			<-ctx.Done()
			return takeover.FoundNotApplied(), nil
		}, "no answer in time: work timeout"},
	} {
		rule(t, name, func(t *testing.T, f *fleet) {
			req := askOnce("k")
			var asked atomic.Int64
			if c.finds != nil {
				req.Terms.Reconciler = takeover.ReconcilerFunc(func(ctx context.Context, r records.Record, req takeover.Request) (takeover.Finding, error) {
					asked.Add(1)
					return c.finds(ctx, r, req)
				})
			}
			req.Terms.WorkTimeout = 20 * time.Second
			_, b := abandoned(f, req)
			got := <-do(b, req, refuse(t))
			got.check(t, takeover.OutcomeUnknown, "")
			if !strings.Contains(got.Completion.Reason, c.want) {
				t.Errorf("reason = %q, want %q", got.Completion.Reason, c.want)
			}
			if !b.log.has("nobody can tell") || !b.log.has(c.want) {
				t.Error("the log does not say so")
			}
			if strings.Contains(c.want, "deadline") && asked.Load() < 4 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}

	rule(t, "ThatOfTheWorkComesFirst", func(t *testing.T, f *fleet) {
		m := f.start(takeover.Config{}, "a")[0]
		req := askKnowing("k", func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
			return takeover.FoundUndecidable("no trace of it"), nil
		})
		got := <-do(m, req, func(context.Context) takeover.Completion { return takeover.Completion{Reason: "connection reset"} })
		if want := "connection reset; undecidable: no trace of it"; got.Completion.Reason != want {
			t.Errorf("reason = %q, want %q", got.Completion.Reason, want)
		}
	})
}

// perhaps is a query that has seen no manual.
type perhaps struct{}

// Ask implements [takeover.Query].
func (perhaps) Ask(_ context.Context, r records.Record, previous records.ExecutorID) (records.Account, error) {
	if previous == r.Executor || previous == (records.ExecutorID{}) {
		return records.Account{}, errors.New("whose execution was interrupted?")
	}
	return records.Account{Finding: "perhaps"}, nil
}

// TestReconciling_ANodeThatDiesInIt is one more that is taken over from.
func TestReconciling_ANodeThatDiesInIt(t *testing.T) {
	t.Parallel()
	rule(t, "ItsSuccessorAsksAnew", func(t *testing.T, f *fleet) {
		req := ask("k")
		asked := make(chan records.Record, 2)
		req.Terms.Reconciler = takeover.ReconcilerFunc(func(ctx context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
			asked <- r
			<-ctx.Done() // the node dies with it
			return takeover.Finding{}, context.Cause(ctx)
		})
		_, b := abandoned(f, req)
		c := f.start(takeover.Config{}, "c")[0]
		_ = do(b, req, refuse(t))
		first := <-asked
		f.die(b)
		f.fence(b)
		s := &findings{all: []func() (takeover.Finding, error){applied("found")}}
		req.Terms.Reconciler = s
		(<-do(c, req, refuse(t))).check(t, takeover.Reconciled, "found")
		r := stands(t, c, req, records.Finalized)
		if r.Epoch != first.Epoch+1 || r.Takeovers != first.Takeovers+1 || r.Executor == first.Executor {
			t.Errorf("epoch %d after %d, %d take-overs after %d", r.Epoch, first.Epoch, r.Takeovers, first.Takeovers)
		}
	})
}
