package sqlite_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestStore(t *testing.T) {
	t.Parallel()
	recordstest.Run(t, func(t testing.TB) func(t testing.TB) records.Store {
		path := newPath(t)
		return func(t testing.TB) records.Store {
			return open(t, sqlite.Config{Path: path, Grace: recordstest.Grace})
		}
	})
}
