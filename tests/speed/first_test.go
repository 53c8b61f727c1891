//go:build unix

package speed_test

import (
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// BenchmarkFirstExecution compares first executions through the middleware,
// over a PostgreSQL that fsyncs, with a handler that writes the key and its
// response down by itself, plainly or tuned. That one has the pool that suits it
// best; ratio is to the plain one, ratio-tuned to the tuned.
func BenchmarkFirstExecution(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	layered := openMiddleware(b, startNode(b, cluster.Database(b)))
	beside := cluster.Database(b)
	fresh := freshKeys()
	naive := func(b *testing.B, name string, connections, inFlight int, tuned bool) *side {
		address := openNaive(b, beside, connections, tuned)
		return &side{name: fmt.Sprint(name, connections), generator: aim(b, address, inFlight, fresh, "Idempotency-Expires: "), apart: tuned}
	}
	for _, inFlight := range []int{64, 256} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			compare(b,
				&side{name: "middleware", generator: aim(b, layered, inFlight, fresh, "Idempotency-Status: executed\r\n")},
				naive(b, "naive", 16, inFlight, false), naive(b, "naive", 64, inFlight, false),
				naive(b, "tuned", 16, inFlight, true), naive(b, "tuned", 64, inFlight, true),
			)
		})
	}
}
