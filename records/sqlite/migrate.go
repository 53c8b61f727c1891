package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jmoiron/sqlx"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/probate-dev/probate/migrations"
	"github.com/probate-dev/probate/records"
)

// Schema is the last migration this binary knows.
const Schema = 3

// admit refuses a file that newer binaries have changed beyond this one.
func admit(f records.Fleet) error {
	if Schema < f.MinBinary {
		return fmt.Errorf("%w: this binary was built for schema %d, the file is at %d and admits %d and newer",
			records.ErrBinaryTooOld, Schema, f.Schema, f.MinBinary)
	}
	return nil
}

// migrateFile brings the file to this binary's schema, over a connection of
// its own. A file that is as new or newer is left as it is.
func migrateFile(ctx context.Context, c Config) error {
	return migrateWith(ctx, c, migrations.SQLite, func(m *migrate.Migrate, applied int) error {
		if applied >= Schema {
			return nil
		}
		c.Logger.InfoContext(ctx, "migrating store", "path", c.Path, "from", max(applied, 0), "to", Schema)
		return m.Up()
	})
}

func migrateWith(ctx context.Context, c Config, files fs.FS, run func(m *migrate.Migrate, applied int) error) (err error) {
	// Before anything is written, or the file is no longer fresh.
	d, err := openMigrator(ctx, c)
	if err != nil {
		return translate(ctx, "open for migrations", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	applied, _, err := d.Version()
	if err != nil {
		return translate(ctx, "read schema version", err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite3", d)
	if err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	if err := run(m, applied); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return translate(ctx, "migrate", err)
	}
	return nil
}

// migrator is a [database.Driver] for golang-migrate over one connection. Its
// lock is the transaction: all migrations between Lock and Unlock happen, or
// none, and of several processes one does the work.
type migrator struct {
	ctx    context.Context // the interface has none
	db     *sqlx.DB
	conn   *sqlx.Conn
	failed bool
}

var _ database.Driver = (*migrator)(nil)

// The table of the stock tool, as its own SQLite driver makes it.
const createVersions = `
CREATE TABLE IF NOT EXISTS schema_migrations (version uint64, dirty bool);
CREATE UNIQUE INDEX IF NOT EXISTS version_unique ON schema_migrations (version)`

func openMigrator(ctx context.Context, c Config) (*migrator, error) {
	db, err := driver.Open(dsn(c, "journal_mode(WAL)"))
	if err != nil {
		return nil, err
	}
	d := &migrator{ctx: ctx, db: sqlx.NewDb(db, "sqlite3")}
	if d.conn, err = d.db.Connx(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// Open is for the stock tool, which has drivers of its own.
func (d *migrator) Open(string) (database.Driver, error) {
	return nil, errors.New("open by URL: not supported")
}

// Close lets go of the connection.
func (d *migrator) Close() error { return errors.Join(d.conn.Close(), d.db.Close()) }

// Lock begins the transaction.
func (d *migrator) Lock() error {
	d.failed = false
	return d.exec("BEGIN IMMEDIATE")
}

// Unlock commits what succeeded, or takes all of it back.
func (d *migrator) Unlock() error {
	if d.failed {
		return d.exec("ROLLBACK")
	}
	if err := d.exec("COMMIT"); err != nil {
		return errors.Join(err, d.exec("ROLLBACK"))
	}
	return nil
}

// Run applies one file.
func (d *migrator) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		d.failed = true
		return err
	}
	return d.exec(string(text))
}

// SetVersion notes the version. Nobody outside the transaction sees it dirty.
func (d *migrator) SetVersion(version int, dirty bool) error {
	if err := d.exec(createVersions + "; DELETE FROM schema_migrations"); err != nil {
		return err
	}
	if version < 0 {
		return nil
	}
	return d.exec(fmt.Sprintf("INSERT INTO schema_migrations (version, dirty) VALUES (%d, %t)", version, dirty))
}

// Version reads the version. No table and no row both mean none.
func (d *migrator) Version() (version int, dirty bool, err error) {
	var exists int
	const find = `SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'`
	if err := d.conn.GetContext(d.ctx, &exists, find); err != nil || exists == 0 {
		return database.NilVersion, false, err
	}
	row := d.conn.QueryRowxContext(d.ctx, `SELECT version, dirty FROM schema_migrations LIMIT 1`)
	if err := row.Scan(&version, &dirty); errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	} else if err != nil {
		return 0, false, err
	}
	return version, dirty, nil
}

// Drop is not offered: removing the file does it.
func (d *migrator) Drop() error { return errors.New("drop: remove the file instead") }

func (d *migrator) exec(text string) error {
	_, err := d.conn.ExecContext(d.ctx, text)
	if err != nil {
		d.failed = true
	}
	return err
}
