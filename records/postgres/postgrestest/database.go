//go:build unix

package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
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
	c.template.Do(func() { c.template.err = c.makeTemplate(context.WithoutCancel(t.Context())) })
	if c.template.err != nil {
		t.Fatal(c.template.err)
	}
	return c.create(t, template)
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

func (c *Cluster) create(t testing.TB, from string) string {
	t.Helper()
	name := "probate_test_" + strings.ToLower(rand.Text())
	if err := c.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		// A server that the test left down takes its databases with it.
		_ = c.exec(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	return c.DSN(name)
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
