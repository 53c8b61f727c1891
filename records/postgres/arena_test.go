package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
)

// arena is where a race is run in a given order: one side is a store, the other
// a transaction of the test's that holds its writes until the store's side has
// come as far as it can.
type arena struct {
	testing.TB
	dsn      string
	db       *sql.DB
	store    *postgres.Store
	observed chan postgres.Observation // what failed in the store
}

func newArena(t testing.TB, mutations ...postgres.Mutation) *arena {
	t.Helper()
	dsn := postgrestest.Database(t)
	a := &arena{TB: t, dsn: dsn, db: postgrestest.Open(t, dsn), observed: make(chan postgres.Observation, 100)}
	store, err := postgres.OpenMutated(t.Context(), postgres.Config{
		DSN: dsn, Cluster: "test", Grace: recordstest.Grace,
		StatementTimeout: time.Minute, DataTimeout: time.Minute, // no timeout decides a race
		Observe: func(o postgres.Observation) {
			if o.Err != nil {
				a.observed <- o
			}
		},
	}, mutations...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	a.store = store
	return a
}

func (a *arena) check(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// boot registers an executor with a long lease.
func (a *arena) boot() records.Executor {
	a.Helper()
	e, err := a.store.Register(a.Context(), registration())
	a.check(err)
	return e
}

func registration() records.Registration {
	var id records.ExecutorID
	rand.Read(id[:])
	return records.Registration{
		ID: id, Slot: id.String(), URL: "http://" + id.String() + ".example:8081",
		PublicKey: make([]byte, 32), Policy: records.PolicyProbe, LeaseTTL: time.Hour,
	}
}

// reservation asks for a key by name.
func reservation(by records.ExecutorID, key string) records.Reservation {
	return records.Reservation{
		ID: records.Key{Realm: "realm", Key: key}.ID(), Realm: "realm", Key: key, Operation: "POST /orders",
		Resource: "/orders", Fingerprint: records.FingerprintOf(key), By: by, Attempt: records.NewToken(),
	}
}

// claim reserves a key.
func (a *arena) claim(by records.ExecutorID, key string) records.Record {
	a.Helper()
	got, err := a.store.Reserve(a.Context(), reservation(by, key))
	a.check(err)
	if !got.Owned {
		a.Fatalf("key %q is not free", key)
	}
	return got.Record
}

func (a *arena) record(id records.ID) records.Record {
	a.Helper()
	held, err := a.store.Load(a.Context(), id)
	a.check(err)
	return held.Record
}

func (a *arena) state(id records.ExecutorID) records.ExecutorState {
	a.Helper()
	e, err := a.store.LoadExecutor(a.Context(), id)
	a.check(err)
	return e.State
}

// exec runs a statement outside the store.
func (a *arena) exec(statement string, args ...any) {
	a.Helper()
	_, err := a.db.ExecContext(a.Context(), statement, args...)
	a.check(err)
}

// other is the other side of a race: a transaction that has written, holds its
// locks, and has not committed.
type other struct {
	*arena
	tx *sql.Tx
}

func (a *arena) begin() *other {
	a.Helper()
	tx, err := a.db.BeginTx(a.Context(), nil)
	a.check(err)
	a.Cleanup(func() { _ = tx.Rollback() })
	return &other{arena: a, tx: tx}
}

// does runs a statement in the transaction.
func (o *other) does(statement string, args ...any) {
	o.Helper()
	_, err := o.tx.ExecContext(o.Context(), statement, args...)
	o.check(err)
}

// fences does what a fence does, up to its commit.
func (o *other) fences(id records.ExecutorID) {
	o.Helper()
	o.does(postgres.LockFleet)
	o.does(postgres.LockExecutor, id.String())
	o.does(`UPDATE probate.executors SET state = 'fenced', fenced_at = clock_timestamp() WHERE id = $1`, id.String())
}

// meets runs the store's side until it waits for a lock of the other's, or has
// ended without, and then commits the other. It reports whether it waited, and
// its error.
func (o *other) meets(call func(ctx context.Context) error) (waited bool, _ error) {
	o.Helper()
	waited, done := o.blocks(call)
	o.check(o.tx.Commit())
	return waited, <-done
}

// blocks runs a call and returns once it waits for a lock, or has ended.
func (a *arena) blocks(call func(ctx context.Context) error) (waited bool, done <-chan error) {
	a.Helper()
	result := make(chan error, 1)
	go func() { result <- call(a.Context()) }()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-result:
			result <- err
			return false, result
		case <-tick.C:
			if a.waiting() > 0 {
				return true, result
			}
		case <-ctx.Done():
			a.Fatal("waited a minute for the store's side to end or to wait")
		}
	}
}

// waiting counts the sessions of this database that wait for a lock.
func (a *arena) waiting() (n int) {
	a.Helper()
	a.check(a.db.QueryRowContext(a.Context(), `
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
	return n
}
