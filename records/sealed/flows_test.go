package sealed_test

import (
	"path/filepath"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
)

// flowStore is a store with both over it.
type flowStore struct {
	*sealed.Store
	*sealed.Flows
}

func TestFlows(t *testing.T) {
	t.Parallel()
	keys, err := sealed.ParseKeys("k:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		t.Fatal(err)
	}
	s := sealed.New(sealed.Config{Keys: keys})
	recordstest.RunFlows(t, func(t testing.TB) func(t testing.TB) recordstest.FlowStore {
		path := filepath.Join(t.TempDir(), "probate.db")
		return func(t testing.TB) recordstest.FlowStore {
			store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test", Grace: recordstest.Grace})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return flowStore{s.Over(store), s.OverFlows(store)}
		}
	})
	t.Run("StrayFlows/GoesPastThoseThatCannotBeOpened", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "probate.db"), Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		others, err := sealed.ParseKeys("l:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
		if err != nil {
			t.Fatal(err)
		}
		other := sealed.New(sealed.Config{Keys: others})
		for id, by := range map[string]*sealed.Sealer{"a": s, "b": s, "c": s, "d": other} {
			if _, _, err := by.OverFlows(store).CreateFlow(t.Context(), records.NewFlow{
				ID: id, Record: records.Key{Key: id}.ID(), Moves: true, State: records.FlowStarted, Attempt: records.NewToken(), Message: []byte("{}"),
			}); err != nil {
				t.Fatal(err)
			}
		}
		strays, err := other.OverFlows(store).StrayFlows(t.Context(), 0, "", 2)
		if err != nil || len(strays) != 1 || strays[0].ID != "d" {
			t.Errorf("%d strays, %v; want d", len(strays), err)
		}
	})
}
