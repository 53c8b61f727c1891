package sqlite_test

import (
	"testing"

	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestFlows(t *testing.T) {
	t.Parallel()
	recordstest.RunFlows(t, func(t testing.TB) func(t testing.TB) recordstest.FlowStore {
		path := newPath(t)
		return func(t testing.TB) recordstest.FlowStore {
			return open(t, sqlite.Config{Path: path, Grace: recordstest.Grace})
		}
	})
}
