package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// join is one with a pool like the test's.
func (a *arena) join() *postgres.Join {
	return &postgres.Join{Store: a.store, DB: sqlx.NewDb(a.db, "postgres")}
}

// orders is a user's table in the same database, and what the user's work does.
func (a *arena) orders() (place func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error), count func() int) {
	a.exec(`CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY)`)
	place = func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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
		a.check(a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), place))
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
		join := a.join()
		for range 3 {
			a.check(join.FinalizeAs(t.Context(), r.ID, r.Fence(), place))
		}
		wants(t, a, r, count, 1, records.Finalized)
	})

	t.Run("AnErrorOfTheWorkRollsBack", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r := a.claim(a.boot().ID, "k")
		broke := errors.New("out of stock")
		err := a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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
			_ = a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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
		err := a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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
			err := a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
				a.check(errOf(a.store.TakeOver(ctx, signedTakeOver(r, taker))))
				return place(ctx, tx)
			})
			if harm := count() > 0 || !errors.Is(err, records.ErrFenced); harm != (name != "") {
				t.Errorf("%s: %d orders, error %v", name, count(), err)
			}
		}
	})

	t.Run("AnOwnerOvertakenBeforeRollsBack", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r, taker := a.claim(a.boot().ID, "k"), a.boot()
		a.check(errOf(a.store.TakeOver(t.Context(), signedTakeOver(r, taker))))
		err := a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), place)
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
		err = a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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
		join := &postgres.Join{Store: a.store, DB: sqlx.NewDb(postgrestest.Open(t, k.through(a.dsn)), "postgres")}
		err := join.FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error) {
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

	t.Run("WhatIsStoredIsWhatTheSealMakesOfIt", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		place, count := a.orders()
		r, join := a.claim(a.boot().ID, "k"), a.join()
		join.Seal = func(id records.ID, f records.Fence, plain records.Response) (records.Response, error) {
			if id != r.ID || f != r.Fence() {
				t.Errorf("sealed for %s under %s", id, f)
			}
			plain.Body = []byte("sealed " + string(plain.Body))
			return plain, nil
		}
		a.check(join.FinalizeAs(t.Context(), r.ID, r.Fence(), place))
		if got := a.record(r.ID).Response; string(got.Body) != "sealed done" || count() != 1 {
			t.Errorf("response = %+v", got)
		}
		broken := a.claim(a.boot().ID, "broken")
		join.Seal = func(records.ID, records.Fence, records.Response) (records.Response, error) {
			return records.Response{}, errors.New("no key")
		}
		if err := join.FinalizeAs(t.Context(), broken.ID, broken.Fence(), place); err == nil || count() != 1 {
			t.Errorf("%d orders, error %v", count(), err)
		}
	})

	t.Run("WithoutAClaimNothingIsDone", func(t *testing.T) {
		t.Parallel()
		err := new(postgres.Join).FinalizeTx(t.Context(), func(context.Context, *sqlx.Tx) (records.Response, error) {
			t.Error("it works")
			return records.Response{}, nil
		})
		if !errors.Is(err, postgres.ErrNoExecution) {
			t.Errorf("error = %v", err)
		}
	})

	t.Run("TheExecutionOfTheContextSaysWhatIsStoredAndIsToldOfIt", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		_, count := a.orders()
		e := &execution{record: a.claim(a.boot().ID, "k")}
		answer := records.Response{Status: 201, Headers: []records.Header{{Name: "Set-Cookie", Value: "x"}}, Body: []byte("paid")}
		a.check(a.join().FinalizeTx(records.WithExecution(t.Context(), e), func(ctx context.Context, tx *sqlx.Tx) (records.Response, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO orders DEFAULT VALUES`)
			return answer, err
		}))
		if got := a.record(e.record.ID).Response; len(got.Headers) != 0 || string(got.Body) != "paid" || count() != 1 {
			t.Errorf("response = %+v", got)
		}
		if len(e.told) != 1 || len(e.told[0].Headers) != 1 || e.doubts != 0 {
			t.Errorf("told %+v, %d doubts", e.told, e.doubts)
		}
	})

	t.Run("AnAnswerThatWasRolledBackIsToldToNobody", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e, join := &execution{record: a.claim(a.boot().ID, "k")}, a.join()
		for _, body := range []string{"first", "second"} {
			a.check(join.FinalizeTx(records.WithExecution(t.Context(), e), func(context.Context, *sqlx.Tx) (records.Response, error) {
				return records.Response{Status: 200, Body: []byte(body)}, nil
			}))
		}
		if len(e.told) != 1 || string(e.told[0].Body) != "first" || e.doubts != 1 {
			t.Errorf("told %+v, %d doubts", e.told, e.doubts)
		}
	})

	t.Run("ACommitOfWhichNobodyHeardIsDoubtful", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e := &execution{record: a.claim(a.boot().ID, "k")}
		away, err := postgres.Open(t.Context(), postgres.Config{DSN: a.dsn, Cluster: "test"})
		a.check(err)
		k := newLink(t, postgrestest.Shared(t).Addr())
		join := &postgres.Join{Store: away, DB: sqlx.NewDb(postgrestest.Open(t, k.through(a.dsn)), "postgres")}
		err = join.FinalizeTx(records.WithExecution(t.Context(), e), func(context.Context, *sqlx.Tx) (records.Response, error) {
			k.loseAnswers(1, 1) // the finalize gets its answer, the commit does not
			return records.Response{Status: 200, Body: []byte("paid")}, away.Close()
		})
		if !errors.Is(err, records.ErrUnavailable) || len(e.told) != 0 || e.doubts != 1 {
			t.Errorf("error %v, told %+v, %d doubts", err, e.told, e.doubts)
		}
	})
}

// execution is work under a claim whose answers lose their headers.
type execution struct {
	record records.Record
	told   []records.Response
	doubts int
}

// Holds implements [records.Execution], as all below.
func (e *execution) Holds() (records.ID, records.Fence) { return e.record.ID, e.record.Fence() }

// Outcome keeps status and body.
func (e *execution) Outcome(r records.Response) records.Outcome {
	r.Headers = nil
	return records.Outcome{Response: r, Retention: time.Hour}
}

// Committed notes what it is told.
func (e *execution) Committed(_ records.Outcome, r records.Response) { e.told = append(e.told, r) }

// Doubtful counts.
func (e *execution) Doubtful() { e.doubts++ }

// TestFinalizeTx_Costs counts round trips: a join costs its caller one
// statement, or two where its sessions do not limit their idling.
func TestFinalizeTx_Costs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting string
		extra   int64
	}{
		"OneStatement":                      {"&idle_in_transaction_session_timeout=60000", 1},
		"OneStatementWithBinaryParameters":  {"&idle_in_transaction_session_timeout=1min&binary_parameters=yes", 1},
		"TwoWhereSessionsIdleForAsLongAsTo": {"", 2},
		"TwoWhereTheyIdleForLongerThanHalf": {"&idle_in_transaction_session_timeout=2h", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			place, count := a.orders()
			by := a.boot().ID // its lease is an hour
			k := newLink(t, postgrestest.Shared(t).Addr())
			var trips trips
			k.heard = trips.hear
			db := sqlx.NewDb(postgrestest.Open(t, k.through(a.dsn)+c.setting), "postgres")
			db.SetMaxOpenConns(1)
			join := &postgres.Join{Store: a.store, DB: db}
			a.check(db.PingContext(t.Context())) // connected
			own := trips.of(func() {
				tx, err := db.BeginTxx(t.Context(), nil)
				a.check(err)
				_, err = place(t.Context(), tx)
				a.check(errors.Join(err, tx.Commit()))
			})
			for i, key := range []string{"first", "second", "third"} {
				r := a.claim(by, key)
				joined := trips.of(func() { a.check(join.FinalizeAs(t.Context(), r.ID, r.Fence(), place)) })
				want := c.extra
				if i == 0 {
					want = 2 // it has to find out
				}
				if joined-own != want || own != 3 {
					t.Errorf("%s: %d round trips, alone %d; want %d more", key, joined, own, want)
				}
			}
			if count() != 4 {
				t.Errorf("%d orders", count())
			}
		})
	}
}

// trips counts how often a server was ready for the next query: what it sends
// at the end of each round trip.
type trips struct {
	ready atomic.Int64
	rest  []byte
}

func (r *trips) of(f func()) int64 {
	before := r.ready.Load()
	f()
	return r.ready.Load() - before
}

// hear reads messages, PostgreSQL manual 55.7: a type, a length, the rest.
func (r *trips) hear(b []byte) {
	r.rest = append(r.rest, b...)
	for len(r.rest) >= 5 {
		n := 1 + int(binary.BigEndian.Uint32(r.rest[1:]))
		if len(r.rest) < n {
			return
		}
		if r.rest[0] == 'Z' {
			r.ready.Add(1)
		}
		r.rest = r.rest[n:]
	}
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
