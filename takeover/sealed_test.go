package takeover_test

import (
	"encoding/base64"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

// keyed is a fleet in a bubble whose nodes have keys of their own.
type keyed struct {
	*fleet
	sealers map[string]*sealed.Sealer // by node
	raw     records.Store
}

// keysOf are the keys that a node starts with.
type keysOf map[string]sealed.Keys

func keyedRule(t *testing.T, name string, having func(t *testing.T) keysOf, test func(t *testing.T, f *keyed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(quickDir(t), "probate.db")
			f := &keyed{sealers: map[string]*sealed.Sealer{}}
			bare := func(t testing.TB) records.Store {
				s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test"})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			f.fleet = newFleetOver(t, func(t testing.TB, node string) records.Store {
				f.sealers[node] = sealed.New(sealed.Config{Keys: having(f.t)[node]})
				return f.sealers[node].Over(bare(t))
			}, simulate)
			f.virtual = true
			f.raw = bare(t)
			t.Cleanup(func() { _ = f.raw.Close() })
			test(t, f)
		})
	})
}

// keys are keys of these ids, always the same ones.
func keys(t testing.TB, ids ...string) sealed.Keys {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		secret := strings.Repeat(id, 32)[:31] + "."
		text.WriteString(id + ":" + base64.StdEncoding.EncodeToString([]byte(secret)) + "\n")
	}
	k, err := sealed.ParseKeys(text.String())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (f *keyed) stored(id records.ID) records.Record {
	f.t.Helper()
	h, err := f.raw.Load(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return h.Record
}

// strangers: who leaves a record behind has another key than who finds it.
func strangers(t *testing.T) keysOf {
	return keysOf{"dead": keys(t, "a"), "heir": keys(t, "b")}
}

func TestSealed(t *testing.T) {
	t.Parallel()
	withRequest := func(_ int, req *takeover.Request) { req.Stored = []byte("as stored") }

	keyedRule(t, "ASweepLeavesWhatItCannotOpen", strangers, func(t *testing.T, f *keyed) {
		left := leaveBehind(f.fleet, 1, withRequest)[0]
		before := f.stored(left.Key.ID())
		var runs atomic.Int64
		m := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "swept")), "heir")[0]
		loads := m.gate.Calls(recordstest.Load)
		f.pass(10 * time.Minute) // 40 sweeps
		ran(t, &runs, 0)
		if got := f.stored(left.Key.ID()); got.State != records.InProgress || got.Fence() != before.Fence() || got.Takeovers != 0 {
			t.Errorf("the record is %s at %s", got.State, got.Fence())
		}
		if n := m.gate.Calls(recordstest.TakeOver); n != 0 {
			t.Errorf("it was taken over %d times", n)
		}
		if n := m.gate.Calls(recordstest.Load) - loads; n < 10 || n > 60 {
			t.Errorf("it was loaded %d times in ten minutes", n)
		}

		f.sealers["heir"].Exchange(keys(t, "b", "a"))
		f.await("it is swept once the key is there", func() bool { return f.stored(left.Key.ID()).State == records.Finalized })
		ran(t, &runs, 1)
	})

	keyedRule(t, "ASweepLeavesAnOrphanOfItsOwnThatItCannotOpen", strangers, func(t *testing.T, f *keyed) {
		var runs atomic.Int64
		m := f.start(knowing("create-payment", takeover.Terms{Reconciler: takeover.Reexecute}, instant(&runs, "swept")), "heir")[0]
		req := ask("k")
		withRequest(0, &req)
		before := orphan(t, m, req)
		f.sealers["heir"].Exchange(sealed.Keys{})
		f.pass(10 * time.Minute)
		ran(t, &runs, 0)
		if got := f.stored(req.Key.ID()); got.State != records.InProgress || got.Fence() != before.Fence() {
			t.Errorf("the record is %s at %s", got.State, got.Fence())
		}
	})

	keyedRule(t, "ADuplicateDoesNotTakeOverWhatItCannotOpen", strangers, func(t *testing.T, f *keyed) {
		left := leaveBehind(f.fleet, 1, withRequest)[0]
		before := f.stored(left.Key.ID())
		var runs atomic.Int64
		m := f.start(takeover.Config{}, "heir")[0]
		reserves, loads := m.gate.Calls(recordstest.Reserve), m.gate.Calls(recordstest.Load)
		if _, err := m.Do(t.Context(), left, instant(&runs, "taken over")); !errors.Is(err, records.ErrSealed) {
			t.Errorf("error = %v", err)
		}
		ran(t, &runs, 0)
		if got := f.stored(left.Key.ID()); got.State != records.InProgress || got.Fence() != before.Fence() {
			t.Errorf("the record is %s at %s", got.State, got.Fence())
		}
		if n := m.gate.Calls(recordstest.Reserve) - reserves + m.gate.Calls(recordstest.Load) - loads; n > 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})

	keyedRule(t, "AWaiterIsToldOfAResultThatItCannotOpen", func(t *testing.T) keysOf {
		return keysOf{"owner": keys(t, "a"), "waiter": keys(t, "b")}
	}, func(t *testing.T, f *keyed) {
		nodes := f.start(takeover.Config{}, "owner", "waiter")
		work := newHeld()
		var runs atomic.Int64
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := nodes[0].Do(t.Context(), ask("k"), work.work)
			first <- err
		}()
		<-work.begun
		go func() {
			_, err := nodes[1].Do(t.Context(), ask("k"), instant(&runs, "again"))
			second <- err
		}()
		f.pass(3 * time.Second) // it waits
		close(work.finish)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; !errors.Is(err, records.ErrSealed) || strings.Contains(err.Error(), "seal\r\n") {
			t.Errorf("error = %v", err)
		}
		ran(t, &runs, 0)
	})
}
