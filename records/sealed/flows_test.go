package sealed_test

import (
	"path/filepath"
	"testing"

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
}
