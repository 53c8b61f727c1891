package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/probate-dev/probate/records/sqlite"
)

// open opens a store and closes it with the test.
func open(t testing.TB, c sqlite.Config) *sqlite.Store {
	t.Helper()
	if c.Cluster == "" {
		c.Cluster = "test"
	}
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "probate.db")
	}
	s, err := sqlite.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
