package takeover_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// erase forgets all that alice said, by way of one member's store.
func erase(t testing.TB, m *member) {
	t.Helper()
	key := ask("").Key
	done, err := m.gate.Store.Erase(t.Context(), records.Erasure{
		Realm: key.Realm, Principal: key.Principal, Actor: "operator", Reason: "asked to", Limit: 1000,
	})
	if err != nil || done.Count == 0 {
		t.Fatalf("erased %+v, %v; want something", done, err)
	}
}

func TestErase(t *testing.T) {
	t.Parallel()
	rule(t, "AReplayIsATombstoneOnEveryNodeOnceABeatHasLanded", func(t *testing.T, f *fleet) {
		nodes := f.start(takeover.Config{}, "a", "b")
		var runs atomic.Int64
		(<-do(nodes[0], ask("k"), instant(&runs, "one"))).check(t, takeover.Executed, "one")
		for _, m := range nodes { // both remember it
			(<-do(m, ask("k"), refuse(t))).check(t, takeover.Replayed, "one")
		}
		erase(t, nodes[0])
		for _, m := range nodes {
			beats := m.gate.Calls(recordstest.Heartbeat)
			f.await("two beats", func() bool { return m.gate.Calls(recordstest.Heartbeat) > beats+1 })
			got := <-do(m, ask("k"), refuse(t))
			got.check(t, takeover.Replayed, "")
			if r := got.Record.Response; r == nil || r.Body != nil || len(r.Headers) != 0 || got.Record.Key != "" {
				t.Errorf("%s replays %+v of key %q after the erasure", m.name, r, got.Record.Key)
			}
		}
		ran(t, &runs, 1)
	})

	// A service that is asked by key has never heard of an empty one, and would
	// say that nothing was done.
	byKey := func(_ context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
		if r.Key == "k" && r.Resource == "/payments" {
			return applied("found")()
		}
		return notApplied()
	}

	rule(t, "ADuplicateOfAnUnknownOneBringsWhatIsAskedFor", func(t *testing.T, f *fleet) {
		req := ask("k")
		req.Resource = "/payments"
		m, _ := settledUnknown(f, req, byKey)
		erase(t, m)
		req.Terms.Reconciler = takeover.ReconcilerFunc(byKey)
		(<-do(m, req, refuse(t))).check(t, takeover.Reconciled, "found")
	})

	rule(t, "OfWhatComesAfterwardsOnlyTheStatusIsKept", func(t *testing.T, f *fleet) {
		for key, reconcile := range map[string]takeover.ReconcilerFunc{
			"found": byKey,
			"anew": func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return notApplied()
			},
		} {
			req := ask("k")
			req.Key.Principal, req.Resource = key, "/payments"
			m := f.start(takeover.Config{}, key)[0]
			once := req
			once.Terms.Reconciler = nil
			<-do(m, once, uncertain)
			if done, err := m.gate.Store.Erase(t.Context(), records.Erasure{
				Realm: req.Key.Realm, Principal: key, Actor: "operator", Reason: "asked to", Limit: 1000,
			}); err != nil || done.Count != 1 {
				t.Fatalf("erased %+v, %v", done, err)
			}
			req.Terms.Reconciler = reconcile
			first := <-do(m, req, func(context.Context) takeover.Completion { return created("found") })
			if first.err != nil || first.Record.Response == nil || string(first.Record.Response.Body) != "found" {
				t.Errorf("%s: the caller is told %+v, %v", key, first.Record.Response, first.err)
			}
			if r := stands(t, m, req, records.Finalized); r.Response.Body != nil || len(r.Response.Headers) != 0 || r.Response.Status != 201 {
				t.Errorf("%s: stored is %+v", key, r.Response)
			}
		}
	})

	rule(t, "WithoutADuplicateNobodyIsAsked", func(t *testing.T, f *fleet) {
		req := ask("k")
		m, r := settledUnknown(f, req, byKey)
		erase(t, m)
		came, err := m.Reconcile(t.Context(), r.ID, r.Epoch)
		if err != nil || !came.Over || came.Finding != takeover.Undecidable || came.Reason == "" {
			t.Errorf("%+v, %v", came, err)
		}
		stands(t, m, req, records.Unknown)
	})

	rule(t, "ASweepAsksNobodyEither", func(t *testing.T, f *fleet) {
		req := ask("k")
		m, r := settledUnknown(f, req, byKey)
		erase(t, m)
		// Its next owner dies while it asks.
		dead := f.start(takeover.Config{}, "b")[0]
		claim := records.UnknownClaim{ID: r.ID, Epoch: r.Epoch, By: dead.Identity().Executor, Attempt: records.NewToken()}
		if _, err := dead.gate.Store.ClaimUnknown(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		f.die(dead)
		f.fence(dead)
		f.await("it is swept", func() bool { return m.record(t, req).State != records.InProgress })
		stands(t, m, req, records.Unknown)
	})
}
