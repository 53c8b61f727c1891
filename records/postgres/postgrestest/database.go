//go:build unix

package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	_ "github.com/lib/pq" // registers the driver that Open uses

	"github.com/probate-dev/probate/records/postgres"
)

// template is the migrated database that all others are copies of.
const template = "probate_template"

// Database makes a fresh, migrated database in the binary's cluster and
// returns its URL. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Database makes a fresh, migrated database and returns its URL. It is dropped
// when the test ends.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	if c.dir == "" {
		// Nothing would drop a template from a server that is not ours.
		dsn := c.create(t, "template0")
		if err := postgres.Migrate(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	c.migrated(t)
	return c.create(t, template)
}

// migrated sees to it that there is a template.
func (c *Cluster) migrated(t testing.TB) {
	t.Helper()
	c.template.Do(func() { c.template.err = c.makeTemplate(context.WithoutCancel(t.Context())) })
	if c.template.err != nil {
		t.Fatal(c.template.err)
	}
}

// Empty makes a database without our schema and returns its URL. It is dropped
// when the test ends.
func (c *Cluster) Empty(t testing.TB) string {
	t.Helper()
	return c.create(t, "template0")
}

// Open opens a pool of the plain driver on a database, closed when the test
// ends: for looking past the store, or standing in its way.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Cleared is [Database] for a test that goes through a store alone, and has
// closed it when it ends: it may get a database that such a test has left,
// emptied. To make one, the server copies some three hundred files.
func Cleared(t testing.TB) string {
	t.Helper()
	return Shared(t).Cleared(t)
}

// Cleared is Database for a test that goes through a store alone, and has
// closed it when it ends.
func (c *Cluster) Cleared(t testing.TB) string {
	t.Helper()
	if c.dir == "" {
		return c.Database(t)
	}
	name := c.takeCleared()
	if name == "" {
		c.migrated(t)
		name = c.make(t, template)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.clear(ctx, name); err != nil {
			t.Logf("database is not used again: %v", err)
			c.drop(ctx, name)
			return
		}
		c.cleared.Lock()
		defer c.cleared.Unlock()
		c.cleared.names = append(c.cleared.names, name)
	})
	return c.DSN(name)
}

func (c *Cluster) takeCleared() string {
	c.cleared.Lock()
	defer c.cleared.Unlock()
	last := len(c.cleared.names) - 1
	if last < 0 {
		return ""
	}
	name := c.cleared.names[last]
	c.cleared.names = c.cleared.names[:last]
	return name
}

// clearing writes the statements that make of a used database what the
// migrations made of it: one for all tables but the fleet's, and one for that.
const clearing = `
SELECT (SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
          FROM pg_tables
         WHERE schemaname = 'probate' AND tablename NOT IN ('fleet', 'schema_migrations')),
       (SELECT 'UPDATE probate.fleet SET ' || string_agg(format('%I = DEFAULT', column_name), ', ')
          FROM information_schema.columns
         WHERE table_schema = 'probate' AND table_name = 'fleet' AND column_default IS NOT NULL AND column_name <> 'one_row')`

func (c *Cluster) clear(ctx context.Context, name string) error {
	db, err := sql.Open("postgres", c.DSN(name)+"&lock_timeout=5000")
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { _ = db.Close() }()
	var truncate, reset string
	if err := db.QueryRowContext(ctx, clearing).Scan(&truncate, &reset); err != nil {
		return fmt.Errorf("clear database: %w", err)
	}
	_, err = db.ExecContext(ctx, truncate)
	_, resetErr := db.ExecContext(ctx, reset)
	return errors.Join(err, resetErr)
}

func (c *Cluster) create(t testing.TB, from string) string {
	t.Helper()
	name := c.make(t, from)
	t.Cleanup(func() { c.drop(context.WithoutCancel(t.Context()), name) })
	return c.DSN(name)
}

func (c *Cluster) make(t testing.TB, from string) string {
	t.Helper()
	name := "probate_test_" + strings.ToLower(rand.Text())
	if err := c.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		t.Fatalf("create database: %v", err)
	}
	return name
}

// drop forgets a database. A server that the test left down takes its
// databases with it.
func (c *Cluster) drop(ctx context.Context, name string) {
	_ = c.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// makeTemplate migrates the database that all others are copies of.
func (c *Cluster) makeTemplate(ctx context.Context) error {
	if err := c.exec(ctx, "CREATE DATABASE "+template+" TEMPLATE template0"); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	return postgres.Migrate(ctx, c.DSN(template))
}

// exec runs one statement on the administrative database.
func (c *Cluster) exec(ctx context.Context, statement string) error {
	db, err := sql.Open("postgres", c.admin.String())
	if err != nil {
		return fmt.Errorf("open administrative database: %w", err)
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, statement)
	return err
}
