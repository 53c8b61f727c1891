package postgres_test

import (
	"testing"

	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
)

func TestFlows(t *testing.T) {
	t.Parallel()
	recordstest.RunFlows(t, func(t testing.TB) func(testing.TB) recordstest.FlowStore {
		dsn := postgrestest.Cleared(t)
		return func(t testing.TB) recordstest.FlowStore { return openStore(t, postgres.Config{DSN: dsn}) }
	})
}

// TestFlows_ThroughPgBouncer runs the suite behind a pooler in transaction
// mode.
func TestFlows_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := postgrestest.Start(t, postgrestest.Options{})
	through := cluster.Pooler(t)
	recordstest.RunFlows(t, func(t testing.TB) func(testing.TB) recordstest.FlowStore {
		dsn := through(cluster.Cleared(t))
		return func(t testing.TB) recordstest.FlowStore {
			return openStore(t, postgres.Config{DSN: dsn, Pooler: postgres.PoolerTransaction})
		}
	})
}
