package tests_test

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// fences is a service that does what docs/fences.md says, by the very
// statements that stand there.
type fences struct {
	t       *testing.T
	db      *sql.DB
	present string
	clean   string
}

func newFences(t *testing.T) *fences {
	t.Helper()
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, "docs/fences.md"), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) != 3 {
		t.Fatalf("docs/fences.md has %d statements, want the table, the fence and the cleaning", len(blocks))
	}
	f := &fences{t: t, db: postgrestest.Open(t, postgrestest.Shared(t).Empty(t)), present: blocks[1], clean: blocks[2]}
	for _, statement := range []string{blocks[0], `CREATE TABLE effects (operation text, epoch bigint)`} {
		if _, err := f.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

var errRefused = errors.New("a greater fence is known")

// begin presents a fence in a transaction that stays open.
func (f *fences) begin(ctx context.Context, operation string, epoch int64, executor string) (*sql.Tx, error) {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	var stands int64
	err = tx.QueryRowContext(ctx, f.present, operation, epoch, executor).Scan(&stands)
	if errors.Is(err, sql.ErrNoRows) {
		err = errRefused
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// effect is a request: the fence and the effect in one transaction.
func (f *fences) effect(operation string, epoch int64, executor string) error {
	tx, err := f.begin(f.t.Context(), operation, epoch, executor)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(f.t.Context(), `INSERT INTO effects VALUES ($1, $2)`, operation, epoch); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// question is the reconciler's: it presents the fence, then looks.
func (f *fences) question(operation string, epoch int64, executor string) (applied bool, _ error) {
	tx, err := f.begin(f.t.Context(), operation, epoch, executor)
	if err != nil {
		return false, err
	}
	if err := tx.Commit(); err != nil {
		return false, err
	}
	return f.effects(operation) > 0, nil
}

func (f *fences) effects(operation string) (n int) {
	f.t.Helper()
	if err := f.db.QueryRowContext(f.t.Context(), `SELECT count(*) FROM effects WHERE operation = $1`, operation).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// TestFences runs the statements of docs/fences.md.
func TestFences(t *testing.T) {
	t.Parallel()
	f := newFences(t)
	want := func(t *testing.T, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("error = %v, want %v", err, want)
		}
	}

	t.Run("ALateEffectOfADeadOwnerIsRefusedOnceTheNewOneHasPresentedItsFence", func(t *testing.T) {
		applied, err := f.question("late", 2, "b")
		want(t, err, nil)
		if applied {
			t.Error("found applied")
		}
		want(t, f.effect("late", 1, "a"), errRefused) // it comes only now
		want(t, f.effect("late", 2, "b"), nil)
		want(t, f.effect("late", 1, "a"), errRefused)
		if n := f.effects("late"); n != 1 {
			t.Errorf("%d effects", n)
		}
	})

	t.Run("AnEqualFenceOfAnotherExecutorIsRefused", func(t *testing.T) {
		want(t, f.effect("equal", 5, "a"), nil)
		want(t, f.effect("equal", 5, "b"), errRefused)
		want(t, f.effect("equal", 5, "a"), nil) // the same one's, sent again
	})

	t.Run("OtherOperationsAreOfNoConcern", func(t *testing.T) {
		want(t, f.effect("one", 9, "a"), nil)
		want(t, f.effect("two", 1, "b"), nil)
	})

	t.Run("AnEffectUnderWayIsSeenOrNeverHappens", func(t *testing.T) {
		for name, c := range map[string]struct {
			end     func(tx *sql.Tx) error
			applied bool
		}{
			"committed":   {(*sql.Tx).Commit, true},
			"rolled back": {(*sql.Tx).Rollback, false},
		} {
			tx, err := f.begin(t.Context(), name, 1, "a")
			want(t, err, nil)
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO effects VALUES ($1, 1)`, name); err != nil {
				t.Fatal(err)
			}
			type reply struct {
				applied bool
				err     error
			}
			replied := make(chan reply, 1)
			go func() {
				applied, err := f.question(name, 2, "b")
				replied <- reply{applied, err}
			}()
			f.awaitWaiting(t)
			want(t, c.end(tx), nil)
			if got := <-replied; got.err != nil || got.applied != c.applied {
				t.Errorf("%s: found applied: %t, %v", name, got.applied, got.err)
			}
			want(t, f.effect(name, 1, "a"), errRefused)
		}
	})

	t.Run("CleaningKeepsWhatIsYoung", func(t *testing.T) {
		want(t, f.effect("old", 7, "a"), nil)
		want(t, f.effect("young", 7, "a"), nil)
		if _, err := f.db.ExecContext(t.Context(), `UPDATE fences SET seen_at = seen_at - interval '8 days' WHERE operation = 'old'`); err != nil {
			t.Fatal(err)
		}
		if _, err := f.db.ExecContext(t.Context(), f.clean); err != nil {
			t.Fatal(err)
		}
		want(t, f.effect("young", 6, "b"), errRefused)
		want(t, f.effect("old", 6, "b"), nil)
	})
}

// awaitWaiting waits until a session of the database waits for a lock.
func (f *fences) awaitWaiting(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for n := 0; n == 0; {
		err := f.db.QueryRowContext(t.Context(), `
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nobody waits for the lock: %v", err)
		}
	}
}
