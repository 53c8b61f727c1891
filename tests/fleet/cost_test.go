//go:build unix

package fleet_test

import (
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// TestCost is about what requests cost that nobody repeats.
func TestCost(t *testing.T) {
	t.Parallel()
	t.Run("AFirstExecutionIsAReserveAndAFinalize", func(t *testing.T) {
		t.Parallel()
		const count = 20
		f := newFleet(t)
		nodes := f.Start(t, "a", "b")
		before := nodes[0].Stats(t)
		for i := range count {
			key := fmt.Sprintf("k%d", i)
			nodes[0].Call(t, key, fleet.Ask{}).Answer(t).Check(t, "executed", "entry 1 under "+key)
		}
		after := nodes[0].Stats(t)
		want := map[string]int{"reserve": count, "settle": count, "load": 0, "claim": 0}
		got := map[string]int{}
		for name := range want {
			got[name] = after.Statements[name] - before.Statements[name]
		}
		if !maps.Equal(got, want) {
			t.Errorf("statements = %v, want %v", got, want)
		}
	})
}

// BenchmarkCost counts statements on the server's side.
func BenchmarkCost(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true, Settings: map[string]string{
		"shared_preload_libraries": "'pg_stat_statements'", "pg_stat_statements.track_utility": "on",
	}})
	server := postgrestest.Open(b, cluster.DSN("postgres"))
	if _, err := server.ExecContext(b.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		b.Fatalf("%v: install PostgreSQL's contrib modules", err)
	}

	// A first execution without any duplicate, after which nothing else reads
	// or writes records: the fleet's chores come rarely.
	b.Run("FirstExecution", func(b *testing.B) {
		f := fleet.New(b, program, cluster.Database(b), fleet.Times{Sweep: endless})
		nodes := f.Start(b, "a", "b", "c")
		nodes[0].Call(b, "first", instant).Answer(b).Check(b, "executed", "instant under first")
		before, i := sent(b, server, f, "%probate.records%"), 0
		for b.Loop() {
			key := fmt.Sprintf("k%d", i)
			nodes[0].Call(b, key, instant).Answer(b).Check(b, "executed", "instant under "+key)
			i++
		}
		spent := sent(b, server, f, "%probate.records%") - before
		if spent != 2*i {
			b.Errorf("%d statements for %d executions, want a reserve and a finalize each", spent, i)
		}
		b.ReportMetric(float64(spent)/float64(i), "statements/op")
	})

	// Everything that an idle fleet sends, from beginnings of transactions to
	// chores, by heartbeats that landed meanwhile.
	b.Run("IdleFleet", func(b *testing.B) {
		f := fleet.New(b, program, cluster.Database(b), fleet.Times{})
		f.Start(b, "a", "b", "c")
		spent, landed := 0, int64(0)
		for b.Loop() {
			before, from := sent(b, server, f, "%"), beats(b, f)
			fleet.Await(b, "thirty heartbeats land", func() bool { return beats(b, f) >= from+30 })
			landed += beats(b, f) - from
			spent += sent(b, server, f, "%") - before
		}
		each := float64(spent) / float64(landed)
		if each > 3 {
			b.Errorf("an idle node sends %.2f statements a heartbeat", each)
		}
		b.ReportMetric(each, "statements/node/heartbeat")
		b.ReportMetric(0, "ns/op")
	})
}

// sent counts the statements of a form that the nodes have sent, by the
// server's own account.
func sent(b *testing.B, server *sql.DB, f *fleet.Fleet, like string) (calls int) {
	b.Helper()
	dsn, err := url.Parse(f.Base.DSN)
	if err != nil {
		b.Fatal(err)
	}
	err = server.QueryRowContext(b.Context(), `
SELECT coalesce(sum(s.calls), 0)
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE d.datname = $1 AND s.query LIKE $2 AND s.query NOT LIKE '%' || $3 || '%'`,
		strings.TrimPrefix(dsn.Path, "/"), like, fleet.SightMark).Scan(&calls)
	if err != nil {
		b.Fatal(err)
	}
	return calls
}

// beats counts the heartbeats of the fleet so far.
func beats(b *testing.B, f *fleet.Fleet) (total int64) {
	b.Helper()
	for _, e := range f.Store.Executors(b) {
		total += e.Beat
	}
	return total
}
