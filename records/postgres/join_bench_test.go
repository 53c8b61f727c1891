package postgres_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// BenchmarkFinalizeTx: what a join costs a transaction of the caller's, alone
// and where its sessions do not limit their idling. The three take turns.
func BenchmarkFinalizeTx(b *testing.B) {
	const turn = 200
	dsn := postgrestest.Database(b)
	plain := postgrestest.Open(b, dsn)
	if _, err := plain.ExecContext(b.Context(), `CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY, amount int)`); err != nil {
		b.Fatal(err)
	}
	store, err := postgres.Open(b.Context(), postgres.Config{DSN: dsn, Cluster: "test"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	by, err := store.Register(b.Context(), registration())
	if err != nil {
		b.Fatal(err)
	}
	bounded := sqlx.NewDb(postgrestest.Open(b, dsn+"&idle_in_transaction_session_timeout=60000"), "postgres")
	joins := []*postgres.Join{{Store: store, DB: bounded}, {Store: store, DB: sqlx.NewDb(plain, "postgres")}}
	work := func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders (amount) VALUES (42)`)
		return done, err
	}
	took := make([]time.Duration, 3)
	for n := 0; b.Loop(); n++ {
		for range turn {
			begun := time.Now()
			tx, err := bounded.BeginTxx(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := work(b.Context(), tx); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
			took[0] += time.Since(begun)
		}
		for side, join := range joins {
			for i := range turn {
				got, err := store.Reserve(b.Context(), reservation(by.ID, strconv.Itoa(side)+"-"+strconv.Itoa(n)+"-"+strconv.Itoa(i)))
				if err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				if err := join.FinalizeAs(b.Context(), got.Record.ID, got.Record.Fence(), work); err != nil {
					b.Fatal(err)
				}
				took[1+side] += time.Since(begun)
			}
		}
	}
	for i, name := range []string{"own-µs", "joined-µs", "unbounded-µs"} {
		b.ReportMetric(float64(took[i].Microseconds())/float64(turn*b.N), name)
	}
}
