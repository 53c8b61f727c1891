package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sqlite"
)

// BenchmarkRequest measures one reserve and one finalize, at each load first
// with a transaction for each statement and then with group commit.
func BenchmarkRequest(b *testing.B) {
	for _, n := range recordstest.InFlight {
		b.Run(fmt.Sprintf("in-flight=%d/plain", n), func(b *testing.B) {
			recordstest.BenchmarkInFlight(b, open(b, sqlite.WithMaxBatch(sqlite.Config{}, 1)), n)
		})
		b.Run(fmt.Sprintf("in-flight=%d/grouped", n), func(b *testing.B) {
			recordstest.BenchmarkInFlight(b, open(b, sqlite.Config{}), n)
		})
	}
}
