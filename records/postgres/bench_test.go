package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
)

// BenchmarkReserveFinalize measures the hot path, one reserve and one finalize
// of a fresh key, on a server that fsyncs: by the store and, on the same rows,
// by two plain prepared single-row statements. The table is fresh and was never
// analysed, or holds a million rows.
func BenchmarkReserveFinalize(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, table := range []struct {
		name string
		rows int
	}{{"fresh", 0}, {"million", million()}} {
		dsn := cluster.Database(b)
		fill(b, dsn, table.rows)
		for _, n := range recordstest.InFlight {
			b.Run(fmt.Sprintf("table=%s/in-flight=%d/plain", table.name, n), func(b *testing.B) {
				if table.rows == 0 {
					dsn = cluster.Database(b)
				}
				recordstest.BenchmarkInFlight(b, openPlain(b, dsn, n), n)
			})
			b.Run(fmt.Sprintf("table=%s/in-flight=%d/store", table.name, n), func(b *testing.B) {
				if table.rows == 0 {
					dsn = cluster.Database(b)
				}
				recordstest.BenchmarkInFlight(b, openStore(b, postgres.Config{DSN: dsn, Grace: records.DefaultGrace}), n)
			})
		}
	}
}

// million is a million rows, or a few when benchmarks only prove that they run.
func million() int {
	if once() {
		return 10_000
	}
	return 1_000_000
}

// fill inserts finalized rows, as a fleet would have left them. It does not
// analyse the table.
func fill(t testing.TB, dsn string, rows int) {
	t.Helper()
	if rows == 0 {
		return
	}
	db := postgrestest.Open(t, dsn)
	for _, statement := range []string{
		`ALTER TABLE probate.records SET (autovacuum_enabled = false)`,
		fmt.Sprintf(`
INSERT INTO probate.records
       (id, realm, key, operation, resource, fingerprint, state, executor_id, executor_url, epoch, attempt,
        takeovers, status, headers, body, created_at, finalized_at, expires_at)
SELECT sha256(i::text::bytea), 'realm', i::text::bytea, 'POST /orders', '/orders/7', sha256('{}'), 'finalized',
       '00000000-0000-4000-8000-000000000000', 'http://10.0.0.1:8081', i, decode('00112233445566778899aabbccddeeff', 'hex'),
       0, 201, decode('00', 'hex'), decode(repeat(md5(i::text), 12), 'hex'), now(), now(), now() + interval '24 hours'
  FROM generate_series(1, %d) i`, rows),
		`CHECKPOINT`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// plain is a store whose hot path is two single-row statements, each prepared,
// committed and answered by itself.
type plain struct {
	*postgres.Store
	reserve, finalize *sql.Stmt
}

const (
	plainReserve = `
INSERT INTO probate.records
       (id, realm, key, operation, resource, fingerprint, state,
        executor_id, executor_url, epoch, attempt, takeovers, created_at)
SELECT $1, $2, $3, $4, $5, $6, 'in_progress', id, url, 1, $7, 0, clock_timestamp()
  FROM probate.executors
 WHERE id = $8 AND state = 'active'
    ON CONFLICT (id) DO NOTHING
RETURNING epoch`
	plainFinalize = `
UPDATE probate.records
   SET state = 'finalized', status = $4, headers = $5, body = $6,
       finalized_at = clock_timestamp(), expires_at = clock_timestamp() + interval '24 hours'
 WHERE id = $1 AND executor_id = $2 AND epoch = $3 AND state = 'in_progress'`
)

func openPlain(b *testing.B, dsn string, inFlight int) records.Store {
	b.Helper()
	db := postgrestest.Open(b, dsn+"&binary_parameters=yes")
	db.SetMaxOpenConns(min(inFlight, 32))
	db.SetMaxIdleConns(min(inFlight, 32))
	p := plain{Store: openStore(b, postgres.Config{DSN: dsn})}
	for text, st := range map[string]**sql.Stmt{plainReserve: &p.reserve, plainFinalize: &p.finalize} {
		var err error
		if *st, err = db.PrepareContext(b.Context(), text); err != nil { //nolint:sqlclosecheck // the pool closes it
			b.Fatal(err)
		}
	}
	return p
}

// Reserve is the plain statement.
func (p plain) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	got := records.Reserved{Owned: true}
	err := p.reserve.QueryRowContext(ctx, r.ID[:], []byte(r.Realm), []byte(r.Key), []byte(r.Operation), []byte(r.Resource),
		r.Fingerprint[:], r.Attempt[:], r.By.String()).Scan(&got.Record.Epoch)
	got.Record.ID, got.Record.Executor = r.ID, r.By
	return got, err
}

// Finalize is the plain statement.
func (p plain) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	result, err := p.finalize.ExecContext(ctx, id[:], f.Executor.String(), f.Epoch,
		o.Response.Status, records.AppendHeaders(nil, o.Response.Headers), o.Response.Body)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = errors.New("finalize changed nothing")
	}
	return err
}
