//go:build unix

package takeover_test

import (
	"context"
	"database/sql"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/takeover"
)

// server is a fleet's PostgreSQL, and the link that each node has to it.
type server struct {
	*fleet
	dsn  string
	db   *sql.DB // past the store
	link map[string]*link
}

// newPostgresFleet makes an empty fleet over a fresh database and real sockets.
func newPostgresFleet(t *testing.T) *server {
	s := &server{dsn: postgrestest.Database(t), link: map[string]*link{}}
	s.db = postgrestest.Open(t, s.dsn)
	s.fleet = newFleetOver(t, s.openFor, connect)
	return s
}

func (s *server) openFor(t testing.TB, node string) records.Store {
	t.Helper()
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(t, u.Host)
	s.link[node] = l
	u.Host = l.addr()
	st, err := postgres.Open(t.Context(), postgres.Config{DSN: u.String(), Cluster: "test", StatementTimeout: hasty().StatementTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// hasty are times with a lease that a test can outlast, and that a busy
// machine can keep.
func hasty() takeover.Config {
	c := brisk()
	c.StatementTimeout, c.LeaseTTL, c.Margin = time.Second, 6*time.Second, 1500*time.Millisecond
	return c
}

// freeze locks a table against everybody until the returned function is
// called.
func (s *server) freeze(table string) (thaw func()) {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// away waits until the database's clock says that no node's heartbeat is
// younger than two leases. It reads the clock past the lock.
func (s *server) away(since time.Time, leases time.Duration) {
	s.t.Helper()
	s.await("two leases have passed", func() bool {
		var now time.Time
		if err := s.db.QueryRowContext(s.t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			s.t.Fatal(err)
		}
		return now.Sub(since) > leases*hasty().LeaseTTL
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]takeover.Config{"PolicyProbe": {}, "PolicyLease": leased()} {
		t.Run("AKilledOwnerIsOvertaken/"+name, func(t *testing.T) {
			t.Parallel()
			s := newPostgresFleet(t)
			c := brisk()
			if config.Policy == records.PolicyLease {
				c = hasty()
			}
			c.Policy = config.Policy
			nodes := s.start(c, "a", "b", "c")
			s.attested(nodes...)
			_, _ = begin(nodes[0], ask("k"))
			var runs atomic.Int64
			one, two := do(nodes[1], patient("k"), instant(&runs, "second")), do(nodes[2], patient("k"), instant(&runs, "second"))
			s.await("both watch", func() bool { return nodes[1].calls.watches.Load() > 0 && nodes[2].calls.watches.Load() > 0 })
			s.die(nodes[0])
			for _, got := range []answered{<-one, <-two} {
				if got.Outcome != takeover.TookOver {
					got.check(t, takeover.Waited, "second")
				}
			}
			ran(t, &runs, 1)
			row := nodes[0].row(t)
			if since := row.FencedAt.Sub(row.HeartbeatAt); config.Policy == records.PolicyLease && since < row.LeaseTTL {
				t.Errorf("fenced %s after a heartbeat", since)
			}
		})
	}
}

// postgresCases are those that need the server's own locks and connections.
func postgresCases(t *testing.T) {
	for name, config := range map[string]takeover.Config{"PolicyProbe": {}, "PolicyLease": leased()} {
		t.Run("K43_ExecutorsLockedForTwoLeases/"+name, func(t *testing.T) {
			t.Parallel()
			s := newPostgresFleet(t)
			c := hasty()
			c.Policy = config.Policy
			nodes := s.start(c, "a", "b", "c")
			s.attested(nodes...)
			quick, first := begin(nodes[0], ask("quick"))
			slow, second := begin(nodes[0], askOnce("slow"))
			waiting := do(nodes[1], patient("quick"), refuse(t))
			s.await("b watches", func() bool { return nodes[1].calls.watches.Load() > 0 })
			last := nodes[0].row(t).HeartbeatAt
			thaw := s.freeze("probate.executors")
			close(quick.finish) // it is done while the store is away
			s.away(last, 2)
			s.await("the slow one is told", func() bool { return slow.ended(takeover.ErrLeaseLost) })
			thaw()
			for _, m := range nodes {
				s.await(m.name+" beats again", func() bool { return m.Status().HeartbeatAge < time.Second })
			}
			(<-first).check(t, takeover.Executed, "held")
			(<-waiting).check(t, takeover.Waited, "held")
			(<-second).check(t, takeover.Executed, "")
			stands(t, nodes[0], askOnce("slow"), records.Unknown)
			var runs atomic.Int64
			for _, m := range nodes {
				(<-do(m, ask("after on "+m.name), instant(&runs, "one"))).check(t, takeover.Executed, "one")
			}
			nobodyFenced(t, nodes[0])
		})
	}

	t.Run("K44_OneObserversLinkToTheServerIsFrozen", func(t *testing.T) {
		t.Parallel()
		s := newPostgresFleet(t)
		nodes := s.start(hasty(), "a", "b", "c")
		s.attested(nodes...)
		h, first := begin(nodes[0], ask("k"))
		b := nodes[1]
		waiting := do(b, patient("k"), refuse(t))
		s.await("b watches", func() bool { return b.calls.watches.Load() > 0 })
		old := b.Identity().Executor
		s.link["b"].set(blackhole)
		s.fleet.between(b, nodes[0]).set(blackhole)
		s.away(b.executorRow(s, old).HeartbeatAt, 2)
		s.link["b"].set(healthy)
		s.await("b is back", func() bool { return b.Status().HeartbeatAge < time.Second && b.registered(t) })
		s.await("it looks at the owner again", func() bool { return b.log.has("suspicion") })
		close(h.finish)
		(<-first).check(t, takeover.Executed, "held")
		(<-waiting).check(t, takeover.Waited, "held")
		if n := s.count(fenced, func(e event) bool { return e.node == "b" }); n != 0 {
			t.Errorf("it fenced %d", n)
		}
		if state := nodes[0].row(t).State; state != records.Active {
			t.Errorf("the owner is %s", state)
		}
	})
}

// executorRow reads an executor past a node's own, frozen, link.
func (m *member) executorRow(s *server, id records.ExecutorID) records.Executor {
	s.t.Helper()
	return s.boots[0].executor(s.t, id)
}
