package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/migrations"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("UpDownUpLeavesTheSameSchema", func(t *testing.T) {
		t.Parallel()
		m := newMigrations(t, migrations.SQLite)
		m.must(m.run((*migrate.Migrate).Up))
		first := m.schema()
		m.must(m.run((*migrate.Migrate).Down))
		if got := m.tables(); !slices.Equal(got, []string{"schema_migrations"}) {
			t.Errorf("after down there is %v, want the version table alone", got)
		}
		m.must(m.run((*migrate.Migrate).Up))
		if diff := cmp.Diff(first, m.schema()); diff != "" {
			t.Errorf("schema after up, down, up (-first +then):\n%s", diff)
		}
		open(t, m.config)
	})

	t.Run("AllOrNothing", func(t *testing.T) {
		t.Parallel()
		files := fstest.MapFS{}
		for _, name := range []string{"000001_init.up.sql", "000001_init.down.sql"} {
			b, err := fs.ReadFile(migrations.SQLite, name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = &fstest.MapFile{Data: b}
		}
		files["000002_bad.up.sql"] = &fstest.MapFile{Data: []byte("CREATE TABLE extra (n INTEGER) STRICT; CREATE TABLE extra (n INTEGER) STRICT;")}
		m := newMigrations(t, files)
		if err := m.run((*migrate.Migrate).Up); err == nil {
			t.Fatal("a migration that cannot be applied was")
		}
		if got := m.tables(); len(got) != 0 {
			t.Errorf("a failed migration left %v", got)
		}
		open(t, m.config) // and nobody has to repair anything
	})

	t.Run("RefusesAStoreThatAdmitsOnlyNewerBinaries", func(t *testing.T) {
		t.Parallel()
		m := newMigrations(t, migrations.SQLite)
		m.must(m.run((*migrate.Migrate).Up))
		m.exec("UPDATE fleet SET schema = 9, min_binary = 9; UPDATE schema_migrations SET version = 9")
		if _, err := sqlite.Open(t.Context(), m.config); !errors.Is(err, records.ErrBinaryTooOld) {
			t.Errorf("open = %v, want ErrBinaryTooOld", err)
		}
	})

	t.Run("WorksWithANewerStoreThatAdmitsIt", func(t *testing.T) {
		t.Parallel()
		m := newMigrations(t, migrations.SQLite)
		m.must(m.run((*migrate.Migrate).Up))
		next := sqlite.Schema + 1
		m.exec(fmt.Sprintf("UPDATE fleet SET schema = %d, min_binary = 1; UPDATE schema_migrations SET version = %d", next, next))
		f, err := open(t, m.config).Fleet(t.Context())
		if want := (records.Fleet{Cluster: "test", Schema: next, MinBinary: 1}); err != nil || f != want {
			t.Errorf("fleet = %+v, %v; want %+v", f, err, want)
		}
	})

	t.Run("AFileOfSchema1KeepsWhatIsRecorded", func(t *testing.T) {
		t.Parallel()
		m := newMigrations(t, migrations.SQLite)
		m.must(m.run(func(t *migrate.Migrate) error { return t.Migrate(1) }))
		id := records.Key{Key: "kept"}.ID()
		m.exec(fmt.Sprintf(`INSERT INTO records (id, state, executor_id, executor_url, epoch, attempt, takeovers, created_at,
			finalized_at, expires_at, fingerprint, realm, key, operation, resource)
			VALUES (x'%s', 'unknown', x'%032x', '', 7, x'%032x', 0, 1, 1, 1, x'%s', x'', x'', x'', x'')`, id, 1, 1, id))
		s := open(t, m.config)
		if held, err := s.Load(t.Context(), id); err != nil || held.Record.Epoch != 7 {
			t.Errorf("record = %+v, %v; want it as it was", held.Record, err)
		}
		if err := s.Note(t.Context(), []records.Occurrence{{Kind: records.EventProbed}}); err != nil {
			t.Error(err)
		}
	})

	t.Run("WritesItsNumberIntoTheFleetRow", func(t *testing.T) {
		t.Parallel()
		f, err := open(t, sqlite.Config{}).Fleet(t.Context())
		if err != nil || f.Schema != sqlite.Schema {
			t.Errorf("fleet = %+v, %v; want schema %d", f, err, sqlite.Schema)
		}
	})
}

// migrationsTest runs the tool over a file of its own.
type migrationsTest struct {
	*testing.T
	config sqlite.Config
	files  fs.FS
}

func newMigrations(t *testing.T, files fs.FS) migrationsTest {
	return migrationsTest{t, sqlite.Config{Path: newPath(t), Cluster: "test"}, files}
}

func (m migrationsTest) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m migrationsTest) run(step func(*migrate.Migrate) error) error {
	m.Helper()
	return sqlite.MigrateWith(m.Context(), m.config, m.files, func(t *migrate.Migrate, _ int) error { return step(t) })
}

func (m migrationsTest) exec(text string) {
	m.Helper()
	m.must(sqlite.Exec(m.Context(), m.config, text))
}

// tables lists what is there, but for SQLite's own.
func (m migrationsTest) tables() []string {
	m.Helper()
	names, err := sqlite.Strings(m.Context(), m.config, `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`)
	m.must(err)
	return names
}

func (m migrationsTest) schema() []string {
	m.Helper()
	texts, err := sqlite.Strings(m.Context(), m.config, `SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name`)
	m.must(err)
	return texts
}
