//go:build unix

package speed_test

import (
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// BenchmarkFirstExecution compares first executions through the middleware,
// over a PostgreSQL that fsyncs, with a handler that writes the key and its
// response down by itself. That one has the pool that suits it best.
func BenchmarkFirstExecution(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	layered := openMiddleware(b, startNode(b, cluster.Database(b)))
	plain := cluster.Database(b)
	narrow, wide := openNaive(b, plain, 16), openNaive(b, plain, 64)
	fresh := freshKeys()
	for _, inFlight := range []int{64, 256} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			compare(b,
				&side{name: "middleware", generator: aim(b, layered, inFlight, fresh, "Idempotency-Status: executed\r\n")},
				&side{name: "naive16", generator: aim(b, narrow, inFlight, fresh, "Idempotency-Expires: ")},
				&side{name: "naive64", generator: aim(b, wide, inFlight, fresh, "Idempotency-Expires: ")},
			)
		})
	}
}
