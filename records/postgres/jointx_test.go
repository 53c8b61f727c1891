package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// orders is a user's table in the same database, and what the user's work does.
func (a *arena) orders() (place func(ctx context.Context, tx *sql.Tx) (records.Outcome, error), count func() int) {
	a.exec(`CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY)`)
	place = func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders DEFAULT VALUES`)
		return done, err
	}
	count = func() (n int) {
		a.check(a.db.QueryRowContext(a.Context(), `SELECT count(*) FROM orders`).Scan(&n))
		return n
	}
	return place, count
}

func TestFinalizeTx(t *testing.T) {
	wants := func(t *testing.T, a *arena, r records.Record, count func() int, orders int, state records.State) {
		t.Helper()
		if got := a.record(r.ID).State; got != state || count() != orders {
			t.Errorf("%d orders, record %s; want %d, %s", count(), got, orders, state)
		}
	}

	t.Run("TheEffectAndTheResponseAreOne", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		a.check(a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), place))
		wants(t, a, r, count, 1, records.Finalized)
		if got := a.record(r.ID).Response; string(got.Body) != "done" {
			t.Errorf("response = %+v", got)
		}
	})

	t.Run("CalledAgainItDoesNothing", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		for range 3 {
			a.check(a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), place))
		}
		wants(t, a, r, count, 1, records.Finalized)
	})

	t.Run("AnErrorOfTheWorkRollsBack", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		broke := errors.New("out of stock")
		err := a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
			o, err := place(ctx, tx)
			return o, errors.Join(err, broke)
		})
		if !errors.Is(err, broke) {
			t.Errorf("error = %v, want the work's", err)
		}
		wants(t, a, r, count, 0, records.InProgress)
	})

	t.Run("APanicRollsBackAndGoesOn", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		func() {
			defer func() {
				if recover() != "oops" {
					t.Error("the panic did not go on")
				}
			}()
			_ = a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
				_, err := place(ctx, tx)
				a.check(err)
				panic("oops")
			})
		}()
		wants(t, a, r, count, 0, records.InProgress)
	})

	t.Run("AnOutcomeThatCannotBeStoredRollsBack", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		err := a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
			_, err := place(ctx, tx)
			return records.Outcome{Response: records.Response{Status: 7}}, err
		})
		if !errors.Is(err, records.ErrInvalid) {
			t.Errorf("error = %v, want ErrInvalid", err)
		}
		wants(t, a, r, count, 0, records.InProgress)
	})

	t.Run("AnOwnerOvertakenMeanwhileRollsBack", func(t *testing.T) {
		t.Parallel()
		for name, mutants := range map[string][]postgres.Mutation{"": nil, "WithoutItsGuard": byStateOnly} {
			a := newArena(t, mutants...)
			place, count := a.orders()
			r, taker := a.claim(a.boot().ID, "k"), a.boot()
			err := a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
				a.check(errOf(a.store.TakeOver(ctx, signedTakeOver(r, taker))))
				return place(ctx, tx)
			})
			if harm := count() > 0 || !errors.Is(err, records.ErrFenced); harm != (name != "") {
				t.Errorf("%s: %d orders, error %v", name, count(), err)
			}
		}
	})

	t.Run("AnOwnerOvertakenBeforeDoesNoWork", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r, taker := a.claim(a.boot().ID, "k"), a.boot()
		a.check(errOf(a.store.TakeOver(t.Context(), signedTakeOver(r, taker))))
		err := a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), place)
		if !errors.Is(err, records.ErrFenced) {
			t.Errorf("error = %v, want ErrFenced", err)
		}
		wants(t, a, r, count, 0, records.InProgress)
	})

	t.Run("ATransactionThatIdlesIsEndedBeforeTheLease", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		reg := registration()
		reg.LeaseTTL = 100 * time.Millisecond
		e, err := a.store.Register(t.Context(), reg)
		a.check(err)
		r := a.claim(e.ID, "k")
		err = a.store.FinalizeTx(t.Context(), a.db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
			o, err := place(ctx, tx)
			a.check(err)
			await(t, "the server to end the transaction", func() bool { return a.sessions(ctx, "idle in transaction") == 0 })
			return o, nil
		})
		if !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("error = %v, want ErrUnavailable", err)
		}
		wants(t, a, r, count, 0, records.InProgress)
	})

	t.Run("ALostReplyToTheCommitIsFoundOut", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Shared(t)
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		k := newLink(t, c.Addr())
		db := postgrestest.Open(t, k.through(a.dsn)+"&binary_parameters=yes") // one answer a statement
		err := a.store.FinalizeTx(t.Context(), db, r.ID, r.Fence(), func(ctx context.Context, tx *sql.Tx) (records.Outcome, error) {
			o, err := place(ctx, tx)
			k.loseAnswers(1, 1) // the finalize gets its answer, the commit does not
			return o, err
		})
		a.check(err)
		wants(t, a, r, count, 1, records.Finalized)
		if k.lost() != 1 {
			t.Errorf("%d answers were lost, want the commit's", k.lost())
		}
	})
}

// sessions counts this database's sessions in a state.
func (a *arena) sessions(ctx context.Context, state string) (n int) {
	a.Helper()
	a.check(a.db.QueryRowContext(ctx, `
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND state = $1`, state).Scan(&n))
	return n
}
