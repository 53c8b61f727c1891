package takeover_test

import (
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
}
