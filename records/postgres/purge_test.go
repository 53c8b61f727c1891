package postgres_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
)

// TestPurge: the limit is kept also when the planner believes, from what was
// true when it last looked, that there is nothing to purge.
func TestPurge(t *testing.T) {
	t.Parallel()
	t.Run("KeepsToItsLimitWhateverThePlannerBelieves", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		by := a.boot()
		for i := range 100 {
			a.claim(by.ID, strconv.Itoa(i))
		}
		a.exec("VACUUM ANALYZE probate.records")
		a.exec("UPDATE probate.records SET state = 'released', finalized_at = now(), expires_at = now() - interval '1 day'")
		if n, err := a.store.Purge(t.Context(), 10); err != nil || n != 10 {
			t.Errorf("purged %d, %v, want 10", n, err)
		}
	})
}

// TestFinalizeTx_FindsItselfDone: a first call whose reply was lost may land
// while the second one works.
func TestFinalizeTx_FindsItselfDone(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	r := a.claim(a.boot().ID, "k")
	done := records.Outcome{Response: records.Response{Status: 201}, Retention: time.Hour}
	err := a.join().FinalizeAs(t.Context(), r.ID, r.Fence(), func(ctx context.Context, _ *sqlx.Tx) (records.Outcome, error) {
		return done, a.store.Finalize(ctx, r.ID, r.Fence(), done)
	})
	if err != nil {
		t.Errorf("finalize: %v", err)
	}
}
