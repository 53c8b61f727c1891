package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/postgres" // the stock tool's driver
	_ "github.com/golang-migrate/migrate/v4/source/file"       // and its source

	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func TestMigrate(t *testing.T) {
	t.Run("UpDownUpLeavesTheSameSchema", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		before := schemaOf(t, dsn)
		up(t, dsn)
		first := schemaOf(t, dsn)
		if !strings.Contains(first, "probate.records") {
			t.Fatalf("schema after up:\n%s", first)
		}
		for steps := range postgres.Schema {
			for n := range steps + 1 {
				if err := postgres.Down(t.Context(), dsn); err != nil {
					t.Fatal(err)
				}
				if left := postgres.Schema - n - 1; left > 0 {
					wantStatus(t, dsn, left, "schema_migrations")
				}
			}
			if steps == postgres.Schema-1 {
				if down := schemaOf(t, dsn); down != before {
					t.Errorf("schema after down:\n%s\nwant:\n%s", down, before)
				}
			}
			up(t, dsn)
			if again := schemaOf(t, dsn); again != first {
				t.Errorf("schema after %d down and up:\n%s\nwant:\n%s", steps+1, again, first)
			}
		}
	})

	t.Run("AppliedAgainItChangesNothing", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		up(t, dsn)
		exec1(t, dsn, `UPDATE probate.fleet SET events = 7, erasures = 3`)
		before := schemaOf(t, dsn)
		files, err := filepath.Glob("../../migrations/*.up.sql")
		if err != nil || len(files) != postgres.Schema {
			t.Fatalf("%d migrations, %v; want %d", len(files), err, postgres.Schema)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			exec1(t, dsn, string(text))
		}
		if after := schemaOf(t, dsn); after != before {
			t.Errorf("schema after all files again:\n%s\nwant:\n%s", after, before)
		}
		exec1(t, dsn, fmt.Sprintf(`UPDATE probate.fleet SET cluster = 'kept' WHERE events = 7 AND erasures = 3 AND schema = %d`, postgres.Schema))
		if s, err := postgres.ReadStatus(t.Context(), dsn); err != nil || s.Fleet.Cluster != "kept" {
			t.Errorf("fleet = %+v, %v; want its counters and its schema as before", s.Fleet, err)
		}
	})

	t.Run("SeveralNodesAtOnceMigrateOnce", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if err := postgres.Migrate(t.Context(), dsn); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantStatus(t, dsn, postgres.Schema, "schema_migrations")
	})

	t.Run("TheStockToolAndOursAgree", func(t *testing.T) {
		t.Parallel()
		ours, stock := postgrestest.Shared(t).Empty(t), postgrestest.Shared(t).Empty(t)
		up(t, ours)
		if err := stockTool(t, stock).Up(); err != nil {
			t.Fatal(err)
		}
		if a, b := schemaOf(t, ours), schemaOf(t, stock); a != b {
			t.Errorf("our schema:\n%s\nthe stock tool's:\n%s", a, b)
		}
		// Each finds nothing to do after the other.
		up(t, stock)
		if err := stockTool(t, ours).Up(); !errors.Is(err, migrate.ErrNoChange) {
			t.Errorf("stock tool after ours: %v, want no change", err)
		}
		wantStatus(t, stock, postgres.Schema, "schema_migrations")
	})

	t.Run("ATableNamedInTheURLIsBothTools", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t) + "&x-migrations-table=probate_migrations"
		if err := stockTool(t, dsn).Up(); err != nil {
			t.Fatal(err)
		}
		up(t, dsn)
		wantStatus(t, dsn, postgres.Schema, "probate_migrations")
		openStore(t, postgres.Config{DSN: dsn}) // which ignores the table
	})

	t.Run("ASharedDatabasesOwnMigrationsAreLeftAlone", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		exec1(t, dsn, `CREATE TABLE schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)`)
		exec1(t, dsn, `INSERT INTO schema_migrations VALUES (20260131, false)`)
		err := postgres.Migrate(t.Context(), dsn)
		if err == nil || !strings.Contains(err.Error(), "x-migrations-table") {
			t.Fatalf("error = %v, want a hint at x-migrations-table", err)
		}
		up(t, dsn+"&x-migrations-table=probate_migrations")
	})

	t.Run("ASchemaThatIsThereIsAdoptedNotMadeAgain", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		up(t, dsn)
		other := dsn + "&x-migrations-table=another_table"
		up(t, other)
		wantStatus(t, other, postgres.Schema, "another_table")
	})

	// The stock tool keeps its table in the first schema of the search path,
	// which for a role named like our schema is ours, once it is there.
	t.Run("ARoleNamedLikeTheSchemaMigratesToo", func(t *testing.T) {
		t.Parallel()
		// A cluster of its own, because roles are not a database's.
		c := postgrestest.Start(t, postgrestest.Options{})
		dsn := c.Empty(t)
		exec1(t, dsn, `CREATE ROLE probate SUPERUSER LOGIN`)
		dsn = strings.Replace(dsn, "tester@", "probate@", 1)
		for range 3 {
			if err := stockTool(t, dsn).Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Fatal(err)
			}
			up(t, dsn)
		}
		wantStatus(t, dsn, postgres.Schema, "schema_migrations")
		before := schemaOf(t, dsn)
		if err := stockTool(t, dsn).Down(); err != nil {
			t.Fatal(err)
		}
		up(t, dsn)
		if after := schemaOf(t, dsn); after != before {
			t.Errorf("schema after down and up:\n%s\nwant:\n%s", after, before)
		}
	})

	t.Run("AHalfDoneMigrationIsNotPassedOver", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		exec1(t, dsn, `UPDATE schema_migrations SET dirty = true`)
		if err := postgres.Migrate(t.Context(), dsn); err == nil || !strings.Contains(err.Error(), "half-way") {
			t.Fatalf("error = %v, want it to say that a migration failed half-way", err)
		}
	})

	t.Run("ADatabaseAheadIsLeftAsItIs", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		exec1(t, dsn, fmt.Sprintf(`UPDATE schema_migrations SET version = %d`, postgres.Schema+1))
		exec1(t, dsn, fmt.Sprintf(`UPDATE probate.fleet SET schema = %d`, postgres.Schema+1))
		up(t, dsn)
		wantStatus(t, dsn, postgres.Schema+1, "schema_migrations")
	})

	t.Run("AWaitForOthersEndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		conn, err := postgrestest.Open(t, dsn).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(x'70726f62617465'::bigint)"); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("operator went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := postgres.Migrate(ctx, dsn); err == nil {
			t.Fatal("migrated while another held the lock")
		}
	})
}

// TestMigrate_StockBinary builds the stock tool from the module cache, as an
// operator installs it, and lets it migrate up and down from the folder.
func TestMigrate_StockBinary(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "migrate")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "postgres", "-o", tool, "github.com/golang-migrate/migrate/v4/cmd/migrate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the stock tool: %v\n%s", err, out)
	}
	dsn := postgrestest.Shared(t).Empty(t)
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-path", "../../migrations", "-database", dsn}, args...)
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Fatalf("migrate %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("up")
	openStore(t, postgres.Config{DSN: dsn})
	run("down", "-all")
	run("up")
	wantStatus(t, dsn, postgres.Schema, "schema_migrations")
}

func up(t *testing.T, dsn string) {
	t.Helper()
	if err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
}

func exec1(t testing.TB, dsn, statement string) {
	t.Helper()
	if _, err := postgrestest.Open(t, dsn).ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func wantStatus(t *testing.T, dsn string, version int, table string) {
	t.Helper()
	s, err := postgres.ReadStatus(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if s.Applied != version || s.Fleet.Schema != version || s.Dirty || s.Table != table {
		t.Errorf("status = %+v, want version %d in %s", s, version, table)
	}
}

// stockTool is golang-migrate as its command wires it, over the folder.
func stockTool(t *testing.T, dsn string) *migrate.Migrate {
	t.Helper()
	m, err := migrate.New("file://../../migrations", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// schemaOf is what pg_dump says about our schema.
func schemaOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dump := exec.CommandContext(t.Context(), filepath.Join(postgrestest.Binaries(t), "pg_dump"),
		"--schema-only", "--exclude-table=*_migrations", "--dbname="+u.Scheme+"://"+u.User.String()+"@"+u.Host+u.Path)
	var stderr bytes.Buffer
	dump.Stderr = &stderr
	out, err := dump.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, stderr.Bytes())
	}
	// Newer versions of pg_dump open with a random word.
	lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool {
		return strings.HasPrefix(line, `\restrict`) || strings.HasPrefix(line, `\unrestrict`)
	})
	return strings.Join(lines, "\n")
}
