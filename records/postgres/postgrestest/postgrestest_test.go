//go:build unix

package postgrestest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func TestCluster(t *testing.T) {
	t.Run("GivesEachTestItsOwnMigratedDatabase", func(t *testing.T) {
		t.Parallel()
		one := postgrestest.Open(t, postgrestest.Database(t))
		two := postgrestest.Open(t, postgrestest.Database(t))
		if _, err := one.ExecContext(t.Context(), "UPDATE probate.fleet SET cluster = 'one'"); err != nil {
			t.Fatal(err)
		}
		var cluster string
		if err := two.QueryRowContext(t.Context(), "SELECT cluster FROM probate.fleet").Scan(&cluster); err != nil || cluster != "" {
			t.Fatalf("cluster of the other database = %q, %v, want it empty", cluster, err)
		}
	})

	t.Run("GivesWhatATestHasLeftEmptied", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Start(t, postgrestest.Options{})
		var first string
		t.Run("Leaves", func(t *testing.T) {
			first = c.Cleared(t)
			db := postgrestest.Open(t, first)
			for _, statement := range []string{
				"UPDATE probate.fleet SET cluster = 'one', erasures = 7",
				"INSERT INTO probate.flow_callbacks VALUES ('f', 1, 'started', '', '', 0, '', now(), now())",
			} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		})
		again := c.Cleared(t)
		if again != first {
			t.Errorf("another database was made: %s, not %s", again, first)
		}
		var left int
		err := postgrestest.Open(t, again).QueryRowContext(t.Context(), `
SELECT (SELECT count(*) FROM probate.flow_callbacks) + (SELECT erasures + length(cluster) FROM probate.fleet WHERE schema > 1)`).Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("left: %d, %v", left, err)
		}
	})

	t.Run("ComesBackWithItsDataAfterACrash", func(t *testing.T) {
		t.Parallel()
		c := postgrestest.Start(t, postgrestest.Options{})
		db := postgrestest.Open(t, c.Database(t))
		if _, err := db.ExecContext(t.Context(), "UPDATE probate.fleet SET cluster = 'kept'"); err != nil {
			t.Fatal(err)
		}
		c.Stop(t, postgrestest.Immediate)
		if err := db.PingContext(t.Context()); err == nil {
			t.Fatal("a stopped server answered")
		}
		c.Start(t)
		var cluster string
		if err := db.QueryRowContext(t.Context(), "SELECT cluster FROM probate.fleet").Scan(&cluster); err != nil || cluster != "kept" {
			t.Fatalf("cluster = %q, %v, want %q", cluster, err, "kept")
		}
	})
}

// TestCluster_EndsWithItsBinary kills a copy of this binary while its cluster
// runs, and waits for the server to go.
func TestCluster_EndsWithItsBinary(t *testing.T) {
	const told = "PROBATE_TEST_CLUSTER_FILE"
	if file := os.Getenv(told); file != "" {
		c := postgrestest.Start(t, postgrestest.Options{})
		if err := os.WriteFile(file, []byte(c.DSN("postgres")), 0o600); err != nil {
			t.Fatal(err)
		}
		// The other side kills this process. A timer, since without cgo the
		// runtime ends a process that waits for nothing that can happen.
		<-time.After(time.Hour)
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/dsn"
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestCluster_EndsWithItsBinary$")
	cmd.Env = append(os.Environ(), told+"="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dsn []byte
	poll(t, "the other process' cluster to start", func(context.Context) bool {
		dsn, err = os.ReadFile(file)
		return err == nil && len(dsn) > 0
	})
	db := postgrestest.Open(t, string(dsn))
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatalf("the other process' cluster does not answer: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	poll(t, "the server to go", func(ctx context.Context) bool { return db.PingContext(ctx) != nil })
}

// poll waits until done, for a minute at most.
func poll(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
