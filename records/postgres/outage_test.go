package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func TestOutage(t *testing.T) {
	t.Run("WorkGoesOnAfterTheServerCrashed", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Start(t, postgrestest.Options{Fsync: true})
		dsn := c.Database(t)
		underLoad(t, dsn, func() {
			c.Stop(t, postgrestest.Immediate)
			c.Start(t)
		})
	})

	t.Run("WorkGoesOnAfterBackendsWereKilled", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Start(t, postgrestest.Options{})
		dsn := c.Database(t)
		admin := postgrestest.Open(t, c.DSN("postgres"))
		underLoad(t, dsn, func() {
			for range 5 {
				await(t, "backends to kill", func() bool {
					var killed int
					if err := admin.QueryRowContext(t.Context(), `
SELECT count(pg_terminate_backend(pid))
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&killed); err != nil {
						t.Fatal(err)
					}
					return killed > 0
				})
			}
		})
	})

	t.Run("WorkGoesOnAfterAFailover", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Start(t, postgrestest.Options{Fsync: true})
		dsn := c.Database(t)
		standby := c.Standby(t)
		// What is acknowledged is on the standby too.
		exec1(t, c.DSN("postgres"), `ALTER SYSTEM SET synchronous_standby_names = '*'`)
		exec1(t, c.DSN("postgres"), `SELECT pg_reload_conf()`)
		underLoad(t, hosts(dsn, c.Addr(), standby.Addr()), func() {
			c.Stop(t, postgrestest.Immediate)
			standby.Promote(t)
		})
	})
}

// underLoad lets a few workers reserve and finalize, repeating what the store
// could not answer, while fault happens in the middle of it. Nothing may fail
// otherwise, and what was acknowledged must be there.
func underLoad(t *testing.T, dsn string, fault func()) {
	t.Helper()
	s := openStore(t, postgres.Config{DSN: dsn, Grace: time.Hour})
	e, err := s.Register(t.Context(), registration())
	if err != nil {
		t.Fatal(err)
	}
	const workers = 16
	var acknowledged sync.Map
	var count atomic.Int64
	over := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				r := reservation(e.ID, fmt.Sprint(w, " ", n))
				got, ok := persist(t, func() (records.Reserved, error) { return s.Reserve(t.Context(), r) })
				if !ok || !got.Owned {
					t.Errorf("reserve: owned = %t", got.Owned)
					return
				}
				o := records.Outcome{Response: records.Response{Status: 200, Body: []byte(r.Key)}, Retention: time.Hour}
				if _, ok := persist(t, func() (any, error) { return nil, s.Finalize(t.Context(), r.ID, got.Record.Fence(), o) }); !ok {
					return
				}
				acknowledged.Store(r.ID, r.Key)
				count.Add(1)
			}
		})
	}
	await(t, "work to be done", func() bool { return count.Load() > 50 || t.Failed() })
	fault()
	before := count.Load()
	await(t, "work to go on", func() bool { return count.Load() > before+50 || t.Failed() })
	close(over)
	wg.Wait()
	acknowledged.Range(func(id, key any) bool {
		held, ok := persist(t, func() (records.Held, error) { return s.Load(t.Context(), id.(records.ID)) })
		if r := held.Record; !ok || r.State != records.Finalized || string(r.Response.Body) != key {
			t.Errorf("record %v is %s, want what was acknowledged", id, r.State)
			return false
		}
		return true
	})
}

// persist repeats a call until the store answers.
func persist[T any](t *testing.T, call func() (T, error)) (T, bool) {
	for {
		value, err := call()
		if !errors.Is(err, records.ErrUnavailable) {
			if err != nil {
				t.Error(err)
			}
			return value, err == nil
		}
		if t.Context().Err() != nil {
			return value, false
		}
	}
}

// hosts is a URL that names several servers.
func hosts(dsn string, addrs ...string) string {
	u, _ := url.Parse(dsn)
	var names, ports []string
	for _, addr := range addrs {
		name, port, _ := strings.Cut(addr, ":")
		names, ports = append(names, name), append(ports, port)
	}
	u.Host = strings.Join(names, ",")
	return u.String() + "&port=" + strings.Join(ports, ",")
}

func TestLink(t *testing.T) {
	c := postgrestest.Start(t, postgrestest.Options{})

	t.Run("ALostAnswerIsFoundOut", func(t *testing.T) {
		t.Parallel()
		dsn := c.Database(t)
		k := newLink(t, c.Addr())
		s := openStore(t, postgres.Config{DSN: k.through(dsn), Grace: time.Hour})
		e, err := s.Register(t.Context(), registration())
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 { // the driver itself repeats up to twice
			r := reservation(e.ID, fmt.Sprint(n))
			k.loseAnswers(0, n)
			got, ok := persist(t, func() (records.Reserved, error) { return s.Reserve(t.Context(), r) })
			if !ok || !got.Owned {
				t.Fatalf("reserve after %d lost answers: owned = %t", n, got.Owned)
			}
			k.loseAnswers(0, n)
			if _, ok := persist(t, func() (any, error) { return nil, s.Finalize(t.Context(), r.ID, got.Record.Fence(), done) }); !ok {
				t.Errorf("finalize after %d lost answers failed", n)
			}
		}
	})

	t.Run("AFrozenLinkEndsACallAndACaller", func(t *testing.T) {
		t.Parallel()
		dsn := c.Database(t)
		k := newLink(t, c.Addr())
		s := openStore(t, postgres.Config{DSN: k.through(dsn), StatementTimeout: 100 * time.Millisecond, DataTimeout: 100 * time.Millisecond})
		e, err := s.Register(t.Context(), registration())
		if err != nil {
			t.Fatal(err)
		}
		k.freeze()
		if _, err := s.Heartbeat(t.Context(), e.ID); !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("heartbeat over a frozen link: %v, want ErrUnavailable", err)
		}
		left := errors.New("caller left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(left)
		for name, call := range map[string]func() error{
			"heartbeat": func() error { return errOf(s.Heartbeat(ctx, e.ID)) },
			"reserve":   func() error { return errOf(s.Reserve(ctx, reservation(e.ID, "k"))) },
			"take over": func() error { return errOf(s.TakeOver(ctx, signedTakeOver(records.Record{ID: records.ID{1}}, e))) },
		} {
			if err := call(); !errors.Is(err, left) {
				t.Errorf("%s by a caller that left: %v, want its cause", name, err)
			}
		}
		k.thaw()
		await(t, "the link to carry heartbeats again", func() bool { return errOf(s.Heartbeat(t.Context(), e.ID)) == nil })
	})

	t.Run("ADeadHostOfTheListIsPassedOver", func(t *testing.T) {
		t.Parallel()
		dead := newLink(t, c.Addr())
		_ = dead.listener.Close()
		openStore(t, postgres.Config{DSN: hosts(c.Database(t), dead.listener.Addr().String(), c.Addr())})
	})

	t.Run("AStandbyIsPassedOverAndAloneIsUnavailable", func(t *testing.T) {
		t.Parallel()
		primary := postgrestest.Start(t, postgrestest.Options{})
		dsn := primary.Database(t)
		standby := primary.Standby(t)
		s := openStore(t, postgres.Config{DSN: hosts(dsn, standby.Addr(), primary.Addr())})
		if _, err := s.Register(t.Context(), registration()); err != nil {
			t.Error(err)
		}
		_, err := postgres.Open(t.Context(), postgres.Config{DSN: hosts(dsn, standby.Addr()), Cluster: "test"})
		if !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("open on a standby: %v, want ErrUnavailable", err)
		}
	})

	t.Run("AServerThatStopsTakingWritesIsLeft", func(t *testing.T) {
		t.Parallel()
		first := postgrestest.Start(t, postgrestest.Options{})
		dsn := first.Database(t)
		second := first.Standby(t)
		s := openStore(t, postgres.Config{DSN: hosts(dsn, first.Addr(), second.Addr())})
		e, err := s.Register(t.Context(), registration())
		if err != nil {
			t.Fatal(err)
		}
		replica := postgrestest.Open(t, second.DSN(dsn[strings.LastIndex(dsn, "/")+1:strings.Index(dsn, "?")]))
		count := func(table string) (n int) {
			if err := replica.QueryRowContext(t.Context(), `SELECT count(*) FROM probate.`+table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		await(t, "the standby to have the executor", func() bool { return count("executors") == 1 })
		second.Promote(t)
		exec1(t, first.DSN("postgres"), `ALTER SYSTEM SET default_transaction_read_only = on`)
		exec1(t, first.DSN("postgres"), `SELECT pg_reload_conf()`)
		await(t, "reserves to go to the server that takes them", func() bool {
			_, err := s.Reserve(t.Context(), reservation(e.ID, "k"))
			if err != nil && !errors.Is(err, records.ErrUnavailable) {
				t.Fatal(err)
			}
			return count("records") == 1
		})
	})
}

func TestTimeouts(t *testing.T) {
	t.Run("AHeartbeatQueuesBehindNoRecords", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e, o := a.boot(), a.begin()
		o.does(`LOCK TABLE probate.records`)
		var wg sync.WaitGroup
		for n := range 50 {
			wg.Go(func() { _, _ = a.store.Reserve(a.Context(), reservation(e.ID, fmt.Sprint(n))) })
		}
		await(t, "reserves to wait", func() bool { return a.waiting() > 0 })
		if _, err := a.store.Heartbeat(t.Context(), e.ID); err != nil {
			t.Errorf("heartbeat: %v", err)
		}
		a.check(o.tx.Rollback())
		wg.Wait()
	})

	t.Run("ALoneCallerThatLeavesIsLetGoAndTheNextIsServed", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e, o := a.boot(), a.begin()
		o.does(`LOCK TABLE probate.records`)
		left := errors.New("caller left")
		ctx, cancel := context.WithCancelCause(t.Context())
		waited, done := a.blocks(func(context.Context) error { return errOf(a.store.Reserve(ctx, reservation(e.ID, "k"))) })
		cancel(left)
		if err := <-done; !waited || !errors.Is(err, left) {
			t.Errorf("waited = %t, error %v, want the caller's cause", waited, err)
		}
		a.check(o.tx.Rollback())
		r := reservation(e.ID, "l")
		got, err := a.store.Reserve(t.Context(), r)
		a.check(err)
		if !got.Owned {
			t.Error("the next caller's key is taken")
		}
	})

	t.Run("ALockedTableEndsTheStatementNotTheStore", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		s := openStore(t, postgres.Config{DSN: dsn, StatementTimeout: 50 * time.Millisecond, DataTimeout: 200 * time.Millisecond})
		e, err := s.Register(t.Context(), registration())
		if err != nil {
			t.Fatal(err)
		}
		tx, err := postgrestest.Open(t, dsn).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), `LOCK TABLE probate.executors, probate.records`); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"heartbeat": func() error { return errOf(s.Heartbeat(t.Context(), e.ID)) },
			"fence":     func() error { return errOf(s.Fence(t.Context(), probed(e, e))) },
			"reserve":   func() error { return errOf(s.Reserve(t.Context(), reservation(e.ID, "k"))) },
			"list":      func() error { return errOf(s.List(t.Context(), records.Filter{Limit: 1})) },
		} {
			if err := call(); !errors.Is(err, records.ErrUnavailable) {
				t.Errorf("%s on a locked table: %v, want ErrUnavailable", name, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Heartbeat(t.Context(), e.ID); err != nil {
			t.Errorf("heartbeat after the lock was gone: %v", err)
		}
	})

	t.Run("AClosedStoreIsUnavailable", func(t *testing.T) {
		t.Parallel()
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: postgrestest.Database(t), Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"heartbeat": func() error { return errOf(s.Heartbeat(t.Context(), records.ExecutorID{})) },
			"reserve":   func() error { return errOf(s.Reserve(t.Context(), reservation(records.ExecutorID{}, "k"))) },
		} {
			if err := call(); !errors.Is(err, records.ErrUnavailable) {
				t.Errorf("%s: %v, want ErrUnavailable", name, err)
			}
		}
	})

	t.Run("AFenceIsNotHeldOffByABusySuspect", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		s, other := openStore(t, postgres.Config{DSN: dsn}), openStore(t, postgres.Config{DSN: dsn})
		e, err := s.Register(t.Context(), registration())
		if err != nil {
			t.Fatal(err)
		}
		var claimed atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 { // few enough for two commits at once
			wg.Go(func() {
				for n := 0; ; n++ {
					_, err := s.Reserve(t.Context(), reservation(e.ID, fmt.Sprint(w, " ", n)))
					if err != nil {
						if !errors.Is(err, records.ErrNotActive) {
							t.Error(err)
						}
						return
					}
					claimed.Add(1)
				}
			})
		}
		await(t, "the suspect to be busy", func() bool { return claimed.Load() > 100 || t.Failed() })
		if _, err := persistent(func() (records.Executor, error) {
			return other.FenceByOperator(t.Context(), records.Condemnation{Executor: e.ID, Actor: "test", Reason: "test", Force: true})
		}, 5); err != nil {
			t.Errorf("fence: %v", err)
		}
		wg.Wait()
	})
}

// persistent repeats a call up to n times until the store answers.
func persistent[T any](call func() (T, error), n int) (value T, err error) {
	for range n {
		if value, err = call(); !errors.Is(err, records.ErrUnavailable) {
			return value, err
		}
	}
	return value, err
}

// await polls until done, for a minute at most.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
