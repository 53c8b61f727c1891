package postgres_test

import (
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// inFlight gives an executor so many records in progress.
func inFlight(t testing.TB, dsn string, by records.Executor, rows int) {
	t.Helper()
	fill(t, dsn, rows)
	db := postgrestest.Open(t, dsn)
	if _, err := db.ExecContext(t.Context(), `
UPDATE probate.records
   SET state = 'in_progress', executor_id = $1, status = NULL, headers = NULL, body = NULL, finalized_at = NULL, expires_at = NULL`,
		by.ID.String()); err != nil {
		t.Fatal(err)
	}
}

// TestOneRow counts what a transaction wrote: rows that carry its number.
func TestOneRow(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	busy, observer := a.boot(), a.boot()
	inFlight(t, a.dsn, busy, 100_000)
	written := func() (rows string) {
		var executors, records int
		a.check(a.db.QueryRowContext(t.Context(), `
SELECT (SELECT count(*) FROM probate.executors e WHERE e.xmin = w.xmin),
       (SELECT count(*) FROM probate.records r WHERE r.xmin = w.xmin)
  FROM probate.executors w
 WHERE w.id = $1`, busy.ID.String()).Scan(&executors, &records))
		return fmt.Sprintf("%d executors, %d records", executors, records)
	}
	e, err := a.store.Heartbeat(t.Context(), busy.ID)
	a.check(err)
	if got := written(); got != "1 executors, 0 records" {
		t.Errorf("a heartbeat wrote %s", got)
	}
	a.check(errOf(a.store.Fence(t.Context(), probed(e, observer))))
	if got := written(); got != "1 executors, 0 records" {
		t.Errorf("a fence wrote %s", got)
	}
}
