package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func TestOpen(t *testing.T) {
	t.Run("RefusesADatabaseWithoutSchemaByName", func(t *testing.T) {
		t.Parallel()
		wantRefused(t, postgrestest.Shared(t).Empty(t), "test", records.ErrSchemaTooOld)
	})
	t.Run("RefusesASchemaThatAdmitsNewerBinariesOnly", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		exec1(t, dsn, fmt.Sprintf(`UPDATE probate.fleet SET schema = %d, min_binary = %d`, postgres.Schema+1, postgres.Schema+1))
		wantRefused(t, dsn, "test", records.ErrBinaryTooOld)
	})
	t.Run("TakesASchemaOneAheadThatAdmitsIt", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		exec1(t, dsn, fmt.Sprintf(`UPDATE probate.fleet SET schema = %d`, postgres.Schema+1))
		openStore(t, postgres.Config{DSN: dsn})
	})
	// A rolling upgrade: migrations go first, the binaries that are there work
	// on, and one that is newer than its store says what is to be done.
	t.Run("RefusesTheSchemaWithoutAnAuditUntilItIsMigrated", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		if err := stockTool(t, dsn).Migrate(1); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dsn, "test", records.ErrSchemaTooOld)
		up(t, dsn)
		s := openStore(t, postgres.Config{DSN: dsn})
		f, err := s.Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := postgres.Admit(f, 1, 1); err != nil {
			t.Errorf("a binary of schema 1 on %+v: %v", f, err)
		}
	})
	t.Run("ARollbackOfTheSchemaKeepsWhatIsRecorded", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Shared(t).Empty(t)
		up(t, dsn)
		s := openStore(t, postgres.Config{DSN: dsn})
		if err := s.Note(t.Context(), []records.Occurrence{{Kind: records.EventProbed}}); err != nil {
			t.Fatal(err)
		}
		id := records.Key{Key: "kept"}.ID()
		exec1(t, dsn, fmt.Sprintf(`INSERT INTO probate.records
			(id, realm, key, operation, resource, fingerprint, state, executor_id, executor_url, epoch, attempt, takeovers, created_at, finalized_at, expires_at)
			VALUES ('\x%s', '', 'kept', '', '', '\x%s', 'unknown', gen_random_uuid(), '', 7, '\x%s', 0, now(), now(), now() + interval '1 day')`,
			id, id, strings.Repeat("00", 16)))
		if err := stockTool(t, dsn).Migrate(1); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, dsn, 1, "schema_migrations")
		up(t, dsn)
		held, err := s.Load(t.Context(), id)
		if err != nil || held.Record.Epoch != 7 {
			t.Errorf("record = %+v, %v; want it as it was", held.Record, err)
		}
		page, err := s.Events(t.Context(), records.EventFilter{Limit: 10})
		if err != nil || len(page.Events) != 0 {
			t.Errorf("events = %+v, %v; want none, in a table made anew", page.Events, err)
		}
	})
	t.Run("OfManyNodesOneNamesTheClusterAndAllJoinIt", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		var wg sync.WaitGroup
		opened := make(chan string, 6)
		for n := range 6 {
			wg.Go(func() {
				name := fmt.Sprintf("cluster-%d", n%2)
				s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: name})
				if errors.Is(err, records.ErrWrongCluster) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				opened <- name
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		close(opened)
		var names []string
		for name := range opened {
			names = append(names, name)
		}
		if len(names) != 3 || len(slices.Compact(names)) != 1 {
			t.Errorf("opened as %v, want three nodes of one cluster", names)
		}
	})
	t.Run("RefusesAnIsolationThatItsStatementsWereNotWrittenFor", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t) + "&options=-c%20default_transaction_isolation%3Dserializable"
		_, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: "test", Pooler: postgres.PoolerTransaction})
		if !errors.Is(err, records.ErrInvalid) {
			t.Errorf("error = %v, want ErrInvalid", err)
		}
		openStore(t, postgres.Config{DSN: dsn}) // which sets its own
	})
	t.Run("ReportsEveryFaultOfAConfigAtOnce", func(t *testing.T) {
		t.Parallel()
		_, err := postgres.Open(t.Context(), postgres.Config{Pooler: "session", Grace: -1})
		for _, field := range []string{"dsn", "cluster", "pooler", "grace"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("error = %v, want it to name %s", err, field)
			}
		}
	})
	t.Run("KeepsAPasswordToItself", func(t *testing.T) {
		t.Parallel()
		_, err := postgres.Open(t.Context(), postgres.Config{DSN: "postgres://u:s3cret@host:port:port/", Cluster: "test"})
		if !errors.Is(err, records.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error = %v", err)
		}
	})
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema, minBinary int
		binary, oldest    int
		want              error
	}{
		{schema: 5, minBinary: 4, binary: 5, oldest: 4},
		{schema: 4, minBinary: 3, binary: 5, oldest: 4}, // upgrading: binary first
		{schema: 6, minBinary: 5, binary: 5, oldest: 4}, // schema first, or binary rolled back
		{schema: 3, minBinary: 2, binary: 5, oldest: 4, want: records.ErrSchemaTooOld},
		{schema: 7, minBinary: 6, binary: 5, oldest: 4, want: records.ErrBinaryTooOld},
		{schema: 0, minBinary: 0, binary: 1, oldest: 1, want: records.ErrSchemaTooOld},
	} {
		err := postgres.Admit(records.Fleet{Schema: c.schema, MinBinary: c.minBinary}, c.binary, c.oldest)
		if !errors.Is(err, c.want) {
			t.Errorf("%+v: error = %v", c, err)
		}
		if c.want != nil && !strings.Contains(err.Error(), fmt.Sprint(c.schema)) {
			t.Errorf("%+v: error %q does not name the store's schema", c, err)
		}
	}
}

func wantRefused(t *testing.T, dsn, cluster string, want error) {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: cluster})
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, want) {
		t.Errorf("error = %v, want %v", err, want)
	}
}
