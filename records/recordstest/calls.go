package recordstest

import (
	"context"
	"errors"

	"github.com/probate-dev/probate/records"
)

// callRules are what every method has in common.
var callRules = group{name: "Call", rules: []rule{
	{"ACancelledContextReturnsItsCause", func(f *fixture) {
		cause := errors.New("the client hung up")
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(cause)
		for name, call := range f.everyCall(f.store) {
			if err := call(ctx); !errors.Is(err, cause) {
				f.Errorf("%s = %v, want the context's cause", name, err)
			}
		}
	}},
	{"AClosedStoreIsUnavailable", func(f *fixture) {
		node := f.open(f)
		calls := f.everyCall(node)
		f.check(node.Close())
		for name, call := range calls {
			if err := call(f.Context()); !errors.Is(err, records.ErrUnavailable) {
				f.Errorf("%s = %v, want ErrUnavailable", name, err)
			}
		}
	}},
	{"ClosingTwiceIsFine", func(f *fixture) {
		node := f.open(f)
		f.check(node.Close())
		f.check(node.Close())
	}},
	{"ClosingWaitsForWhatIsUnderWay", func(f *fixture) {
		a, node := f.active(records.Registration{}), f.open(f)
		wanted := make([]records.Reservation, 32)
		for i := range wanted {
			wanted[i] = reservation(a.ID)
		}
		errs := atOnce(len(wanted)+1, func(i int) error {
			if i == len(wanted) {
				return node.Close()
			}
			return reserveOn(f.Context(), node, wanted[i])
		})
		f.check(errs[len(wanted)])
		for i, r := range wanted {
			switch err := errs[i]; {
			case err == nil:
				f.equal("attempt", f.load(r.ID).Record.Attempt, r.Attempt)
			case !errors.Is(err, records.ErrUnavailable):
				f.Errorf("while the store closed: %v, want ErrUnavailable", err)
			}
		}
	}},
	{"ClosingOneNodeLeavesTheOthers", func(f *fixture) {
		f.check(f.open(f).Close())
		f.claim(f.active(records.Registration{}).ID)
	}},
	{"WhatOneNodeWroteAnotherReads", func(f *fixture) {
		other := &fixture{TB: f.TB, store: f.open(f), open: f.open}
		r := f.claim(f.active(records.Registration{}).ID)
		other.unchanged(r)
		other.finalize(r, outcome("by way of another node", long))
		f.equal("state", f.load(r.ID).Record.State, records.Finalized)
	}},
}}

// everyCall is one good call of each method.
func (f *fixture) everyCall(s records.Store) map[string]func(context.Context) error {
	f.Helper()
	a, leaving := f.active(records.Registration{}), f.draining(records.Registration{})
	suspect := f.active(records.Registration{})
	r, lost, stuck := f.claim(a.ID), f.unknown(a.ID), f.unknown(a.ID)
	return map[string]func(context.Context) error{
		"Register":      func(ctx context.Context) error { return errOf(s.Register(ctx, registration(records.Registration{}))) },
		"Heartbeat":     func(ctx context.Context) error { return errOf(s.Heartbeat(ctx, a.ID)) },
		"Drain":         func(ctx context.Context) error { return s.Drain(ctx, leaving.ID) },
		"Retire":        func(ctx context.Context) error { return s.Retire(ctx, leaving.ID) },
		"Attest":        func(ctx context.Context) error { return s.Attest(ctx, a.ID, true) },
		"LoadExecutor":  func(ctx context.Context) error { return errOf(s.LoadExecutor(ctx, a.ID)) },
		"ListExecutors": func(ctx context.Context) error { return errOf(s.ListExecutors(ctx)) },
		"Fence":         func(ctx context.Context) error { return errOf(s.Fence(ctx, probed(suspect, a))) },
		"FenceByOperator": func(ctx context.Context) error {
			return errOf(s.FenceByOperator(ctx, records.Condemnation{Executor: suspect.ID, Actor: "operator", Reason: "test", Force: true}))
		},
		"PurgeExecutors": func(ctx context.Context) error { return errOf(s.PurgeExecutors(ctx, long)) },
		"Reserve":        func(ctx context.Context) error { return errOf(s.Reserve(ctx, reservation(a.ID))) },
		"Load":           func(ctx context.Context) error { return errOf(s.Load(ctx, r.ID)) },
		"TakeOver":       func(ctx context.Context) error { return errOf(s.TakeOver(ctx, takeOver(r, a.ID))) },
		"ClaimUnknown":   func(ctx context.Context) error { return errOf(s.ClaimUnknown(ctx, claimOf(lost, a.ID))) },
		"Finalize":       func(ctx context.Context) error { return s.Finalize(ctx, r.ID, r.Fence(), outcome("done", long)) },
		"Release":        func(ctx context.Context) error { return s.Release(ctx, r.ID, r.Fence()) },
		"MarkUnknown":    func(ctx context.Context) error { return s.MarkUnknown(ctx, r.ID, r.Fence(), long) },
		"InProgress":     func(ctx context.Context) error { return errOf(s.InProgress(ctx, a.ID, records.ID{}, 10)) },
		"Orphans":        func(ctx context.Context) error { return errOf(s.Orphans(ctx, records.ID{}, 10)) },
		"List":           func(ctx context.Context) error { return errOf(s.List(ctx, records.Filter{Limit: 10})) },
		"Purge":          func(ctx context.Context) error { return errOf(s.Purge(ctx, 10)) },
		"Fleet":          func(ctx context.Context) error { return errOf(s.Fleet(ctx)) },
		"Rekey":          func(ctx context.Context) error { return s.Rekey(ctx, "nobody", "nobody else", "operator") },
		"Note":           func(ctx context.Context) error { return s.Note(ctx, []records.Occurrence{{Kind: records.EventProbed}}) },
		"Events":         func(ctx context.Context) error { return errOf(s.Events(ctx, records.EventFilter{Limit: 10})) },
		"PurgeEvents":    func(ctx context.Context) error { return errOf(s.PurgeEvents(ctx, long, 10)) },
		"ReleaseByOperator": func(ctx context.Context) error {
			return errOf(s.ReleaseByOperator(ctx, intervention(lost)))
		},
		"ResolveByOperator": func(ctx context.Context) error {
			return errOf(s.ResolveByOperator(ctx, intervention(stuck), outcome("found out", long)))
		},
		"Erase": func(ctx context.Context) error { return errOf(s.Erase(ctx, erasure())) },
	}
}

func errOf[T any](_ T, err error) error { return err }
