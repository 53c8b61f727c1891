package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
)

// BenchmarkReserveFinalize measures the hot path, one reserve and one finalize
// of a fresh key, on a server that fsyncs: by the store and, on the same table,
// by two plain prepared single-row statements. The table is fresh or holds a
// million rows, and was never analysed. The sides take turns of a quarter of a
// second, so that what else the machine does befalls both; the rates and their
// ratio are medians of the turns. An operation is a turn of each.
func BenchmarkReserveFinalize(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, table := range []struct {
		name string
		rows int
	}{{"fresh", 0}, {"million", million()}} {
		dsn := cluster.Database(b)
		fill(b, dsn, table.rows)
		for _, n := range recordstest.InFlight {
			b.Run(fmt.Sprintf("table=%s/in-flight=%d", table.name, n), func(b *testing.B) {
				if table.rows == 0 {
					dsn = cluster.Database(b)
					fill(b, dsn, 0)
				}
				both := openStore(b, postgres.Config{DSN: dsn, Grace: records.DefaultGrace})
				e, err := both.Register(b.Context(), registration())
				if err != nil {
					b.Fatal(err)
				}
				single := openPlain(b, both, dsn, n)
				turn(b, single, e.ID, n) // connections are made, statements prepared and planned
				turn(b, both, e.ID, n)
				var plainRates, storeRates, ratios []float64
				for b.Loop() {
					p, s := turn(b, single, e.ID, n), turn(b, both, e.ID, n)
					plainRates, storeRates, ratios = append(plainRates, p), append(storeRates, s), append(ratios, s/p)
				}
				b.ReportMetric(median(plainRates), "plain/s")
				b.ReportMetric(median(storeRates), "store/s")
				b.ReportMetric(median(ratios), "ratio")
			})
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// turn keeps n requests in flight for a while and returns how many were done
// in a second.
func turn(b *testing.B, s records.Store, by records.ExecutorID, n int) float64 {
	b.Helper()
	long := 250 * time.Millisecond
	if once() {
		long = 20 * time.Millisecond
	}
	o := records.Outcome{Retention: 24 * time.Hour, Response: records.Response{
		Status: 201,
		Headers: []records.Header{
			{Name: "Content-Type", Value: "application/json"},
			{Name: "Location", Value: "/orders/0198c5f7-7a34-7c1e-9d1b-3d0d8d1c2b11"},
			{Name: "Etag", Value: `"5f2b8c0e"`},
		},
		Body: make([]byte, 200),
	}}
	prefix := fmt.Sprintf("%x-", records.NewToken())
	var requests, finished atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for time.Since(began) < long {
				r := reservation(by, fmt.Sprint(prefix, requests.Add(1)))
				got, err := s.Reserve(b.Context(), r)
				if err == nil && !got.Owned {
					err = errors.New("a fresh key is taken")
				}
				if err == nil {
					err = s.Finalize(b.Context(), r.ID, got.Record.Fence(), o)
				}
				if err != nil {
					b.Error(err)
					return
				}
				finished.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(finished.Load()) / time.Since(began).Seconds()
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

// plain is the store without its batches: the same decisions by the same
// single-row statements, each prepared, committed and answered by itself.
type plain struct {
	*postgres.Store
	reserve, finalize *sql.Stmt
}

// openPlain returns it over as many connections as are in flight, 32 at most:
// more made it slower.
func openPlain(b *testing.B, s *postgres.Store, dsn string, inFlight int) records.Store {
	b.Helper()
	db := postgrestest.Open(b, dsn+"&binary_parameters=yes")
	db.SetMaxOpenConns(min(inFlight, 32))
	db.SetMaxIdleConns(min(inFlight, 32))
	p := plain{Store: s}
	for text, st := range map[string]**sql.Stmt{postgres.ReserveOne: &p.reserve, postgres.SettleOne: &p.finalize} {
		var err error
		if *st, err = db.PrepareContext(b.Context(), text); err != nil { //nolint:sqlclosecheck // the pool closes it
			b.Fatal(err)
		}
	}
	return p
}

// Reserve is the plain statement. What it returns of the executor is not looked
// at.
func (p plain) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	rows, err := p.reserve.QueryContext(ctx, records.DefaultGrace.Microseconds(), r.By.String(),
		r.ID[:], []byte(r.Realm), []byte(r.Key), []byte(r.Operation), []byte(r.Resource),
		r.Fingerprint[:], r.Attempt[:], r.Request)
	if err != nil {
		return records.Reserved{}, err
	}
	defer func() { _ = rows.Close() }()
	got := records.Reserved{}
	got.Record.ID, got.Record.Executor = r.ID, r.By
	var rest [18]sql.RawBytes
	targets := []any{&rest[0], &got.Record.Epoch}
	for i := range rest[1:] {
		targets = append(targets, &rest[1+i])
	}
	for rows.Next() {
		got.Owned = true
		if err := rows.Scan(targets...); err != nil {
			return records.Reserved{}, err
		}
	}
	return got, rows.Err()
}

// Finalize is the plain statement.
func (p plain) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	result, err := p.finalize.ExecContext(ctx, id[:], f.Executor.String(), f.Epoch, string(records.Finalized),
		o.Response.Status, records.AppendHeaders(nil, o.Response.Headers), o.Response.Body, o.Retention.Microseconds())
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = errors.New("finalize changed nothing")
	}
	return err
}
