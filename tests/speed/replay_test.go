//go:build unix

package speed_test

import (
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// BenchmarkReplay compares replays through the middleware with a handler that
// answers the same bytes and has no layer above it.
func BenchmarkReplay(b *testing.B) {
	const inFlight = 64
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	layered := openMiddleware(b, startNode(b, cluster.Database(b)))
	key := oneKey(1)
	aim(b, layered, 1, key, "Idempotency-Status: executed\r\n").run(b, 0)
	bare := chi.NewRouter()
	bare.Post("/orders/{id}/payments", pay)
	compare(b,
		&side{name: "middleware", generator: aim(b, layered, inFlight, key, "Idempotency-Status: replayed\r\n")},
		&side{name: "bare", generator: aim(b, listen(b, bare), inFlight, key, "Location: /payments/")},
	)
}
