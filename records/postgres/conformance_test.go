package postgres_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
)

func TestConformance(t *testing.T) {
	recordstest.Run(t, func(t testing.TB) func(testing.TB) records.Store {
		dsn := postgrestest.Cleared(t)
		return func(t testing.TB) records.Store { return openStore(t, postgres.Config{DSN: dsn}) }
	})
}

// TestConformance_ThroughPgBouncer runs the suite behind a pooler in
// transaction mode, where nothing that a session holds is there the next time.
func TestConformance_ThroughPgBouncer(t *testing.T) {
	cluster := postgrestest.Start(t, postgrestest.Options{})
	through := cluster.Pooler(t)
	recordstest.Run(t, func(t testing.TB) func(testing.TB) records.Store {
		dsn := through(cluster.Cleared(t))
		return func(t testing.TB) records.Store {
			return openStore(t, postgres.Config{DSN: dsn, Pooler: postgres.PoolerTransaction})
		}
	})
}

// openStore opens one node's store, closed when the test ends.
func openStore(t testing.TB, c postgres.Config) *postgres.Store {
	t.Helper()
	if c.Cluster == "" {
		c.Cluster = "test"
	}
	if c.Grace == 0 {
		c.Grace = recordstest.Grace
	}
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
