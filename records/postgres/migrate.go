package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepostgres "github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/probate-dev/probate/migrations"
	"github.com/probate-dev/probate/records"
)

// Schema numbers. A store may be migrations ahead of its binaries, as far as it
// admits them: migrations go first, then the binaries, one by one, and those can
// be rolled back while the schema stays.
const (
	// Schema is the last migration this binary knows.
	Schema = 3
	// OldestSchema is the oldest store schema this binary works with. Schema 1
	// has no audit, without which an operator could change something unseen: it
	// is migrated first, and the binaries that it had go on working. Schema 3 is
	// only for nodes that move data.
	OldestSchema = 2
)

// migrateLock is the session lock on which all migrating nodes queue, before
// and around the lock of golang-migrate, whose waiting cannot be cancelled. It
// spells "probate".
const migrateLock = 0x70726f62617465

// Status is how far a database is migrated.
type Status struct {
	Fleet   records.Fleet // zero: there is no schema
	Table   string        // the migration tool's table, as x-migrations-table names it
	Applied int           // the version in that table, -1 if it has none
	Dirty   bool          // a migration failed half-way
}

// Migrate applies every migration that the database lacks. Of several nodes
// that call it at once one migrates and the others wait. A database that is
// ahead of this binary is left as it is. It needs a direct connection, not one
// through a pooler.
//
// The migration tool's table is schema_migrations unless the DSN says
// x-migrations-table, as for the stock tool. If that table is empty and the
// schema is there, the table is told, not the migrations run again.
func Migrate(ctx context.Context, dsn string) error {
	return migrateWith(ctx, dsn, migrations.Postgres, func(m *migrate.Migrate, applied int) error {
		if applied >= Schema {
			return nil
		}
		return m.Up()
	})
}

// Down takes back the last migration. The first one takes everything that is
// stored with it.
func Down(ctx context.Context, dsn string) error {
	return migrateWith(ctx, dsn, migrations.Postgres, func(m *migrate.Migrate, applied int) error {
		if applied < 1 {
			return nil
		}
		return m.Steps(-1)
	})
}

// ReadStatus reads how far a database is migrated, and changes nothing.
func ReadStatus(ctx context.Context, dsn string) (Status, error) {
	db, table, err := openDirect(dsn)
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = db.Close() }()
	status := Status{Table: table, Applied: database.NilVersion}
	if status.Fleet, err = readFleet(ctx, db); err != nil && !errors.Is(err, errNoSchema) {
		return Status{}, err
	}
	err = db.QueryRowContext(ctx, "SELECT version, dirty FROM "+quoteName(table)).Scan(&status.Applied, &status.Dirty)
	if err != nil && !errors.Is(err, sql.ErrNoRows) && !isUndefined(err) {
		return Status{}, classify(ctx, "read migration table", err)
	}
	return status, nil
}

// migrateWith holds the lock, makes the tool's table agree with the schema and
// runs one migration step over files.
func migrateWith(ctx context.Context, dsn string, files fs.FS, run func(m *migrate.Migrate, applied int) error) error {
	db, table, err := openDirect(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return classify(ctx, "connect to migrate", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", migrateLock); err != nil {
		return classify(ctx, "wait for other migrations", err)
	}
	fleet, err := readFleet(ctx, conn)
	if err != nil && !errors.Is(err, errNoSchema) {
		return err
	}

	m, applied, err := newMigrate(ctx, conn, table, files)
	if err != nil {
		return err
	}
	if applied == database.NilVersion && fleet.Schema > 0 {
		if err := m.Force(fleet.Schema); err != nil {
			return fmt.Errorf("adopt schema %d: %w", fleet.Schema, err)
		}
		applied = fleet.Schema
	}
	if applied != fleet.Schema && applied != database.NilVersion {
		return fmt.Errorf("table %s is at version %d but the schema of probate is %d: "+
			"if the database is shared, name our own table with x-migrations-table", table, applied, fleet.Schema)
	}
	if err := run(m, applied); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// newMigrate returns the tool over one connection, which stays ours, and the
// version its table holds.
func newMigrate(ctx context.Context, conn *sql.Conn, table string, files fs.FS) (*migrate.Migrate, int, error) {
	var name string
	if err := conn.QueryRowContext(ctx, "SELECT current_database()").Scan(&name); err != nil {
		return nil, 0, classify(ctx, "read database name", err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return nil, 0, fmt.Errorf("read migrations: %w", err)
	}
	// The stock tool locks by the path of its URL, slash included. The same
	// name gives the same lock, so the two cannot migrate at once either.
	driver, err := migratepostgres.WithConnection(ctx, conn, &migratepostgres.Config{DatabaseName: "/" + name, MigrationsTable: table})
	if err != nil {
		return nil, 0, fmt.Errorf("open migration table: %w", err)
	}
	applied, dirty, err := driver.Version()
	if err != nil {
		return nil, 0, fmt.Errorf("read migration table: %w", err)
	}
	if dirty {
		return nil, 0, fmt.Errorf("migration %d failed half-way: repair the schema, then set the version with the migrate tool", applied)
	}
	m, err := migrate.NewWithInstance("iofs", source, "postgres", driver)
	if err != nil {
		return nil, 0, fmt.Errorf("prepare migrations: %w", err)
	}
	return m, applied, nil
}

// openDirect opens a pool without timeouts of ours, for migrations, and
// returns the name of the tool's table.
func openDirect(dsn string) (*sql.DB, string, error) {
	config, own, err := parseDSN(dsn)
	if err != nil {
		return nil, "", err
	}
	c, err := connector(config, 0, nil)
	if err != nil {
		return nil, "", err
	}
	table := own["x-migrations-table"]
	if table == "" {
		table = migratepostgres.DefaultMigrationsTable
	}
	return sql.OpenDB(c), table, nil
}
