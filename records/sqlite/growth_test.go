package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// seed fills a file with records that have expired, as a purge that fell far
// behind would find it: ?, the number of rows, and the same executor for all.
const seed = `
WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
INSERT INTO records (id, state, executor_id, executor_url, epoch, attempt, takeovers, created_at, finalized_at,
       expires_at, status, fingerprint, realm, key, operation, resource, headers)
SELECT CAST(printf('%%032d', i) AS BLOB), 'finalized', x'%x', 'http://127.0.0.1:8081', i, zeroblob(16), 0, i, i,
       i, 200, zeroblob(32), x'', x'', x'', x'', x'00'
  FROM n`

// TestGrowth counts the steps of SQLite's machine for every statement of the
// hot path and of the background, on a table of a thousand rows and of a
// million: they are the same.
func TestGrowth(t *testing.T) {
	t.Parallel()
	small, large := steps(t, 1_000), steps(t, many)
	for name, few := range small {
		if got := large[name]; got > few+few/4 {
			t.Errorf("%s takes %d steps on a thousand records and %d on %d", name, few, got, many)
		}
	}
}

func steps(t *testing.T, rows int) map[string]int {
	n := newNode(t, sqlite.Config{})
	e := n.register(records.Registration{})
	dead := n.register(records.Registration{})
	claim, orphan := reserve(t, n.Store, e.ID), reserve(t, n.Store, dead.ID)
	n.kill(dead.ID)
	if err := sqlite.Exec(t.Context(), sqlite.Config{Path: n.path, Cluster: "test"}, fmt.Sprintf(seed, rows, e.ID[:])); err != nil {
		t.Fatal(err)
	}
	var (
		now   = n.clock.Now().UnixMicro()
		empty = []byte{}
		token = make([]byte, 16)
		print = make([]byte, 32)
		first = make([]byte, 32)
		last  = fmt.Appendf(nil, "%032d", 500)
		fresh = reservation(e.ID).ID
	)
	reserveArgs := func(id []byte) []any {
		return []any{now, int64(0), id, empty, empty, empty, empty, print, e.ID[:], token, nil}
	}
	taken := make(map[string]int)
	for name, c := range map[string]struct {
		text string
		args []any
	}{
		"reserve of a fresh key":  {sqlite.Reserve, reserveArgs(fresh[:])},
		"reserve of a taken key":  {sqlite.Reserve, reserveArgs(claim.ID[:])},
		"load":                    {sqlite.Load, []any{claim.ID[:]}},
		"finalize":                {sqlite.Finalize, []any{now, claim.ID[:], e.ID[:], claim.Epoch, now, int64(200), empty, empty}},
		"take over":               {sqlite.TakeOver, []any{e.ID[:], token, orphan.ID[:], dead.ID[:], orphan.Epoch, int64(0)}},
		"purge of a page":         {sqlite.Purge, []any{now, int64(100)}},
		"purge of nothing":        {sqlite.Purge, []any{int64(0), int64(100)}},
		"records of an executor":  {sqlite.InProgress, []any{e.ID[:], first, int64(100)}},
		"sweep of the dead":       {sqlite.Orphans, []any{first, int64(100)}},
		"end of a page":           {sqlite.ListBound, []any{first, int64(500)}},
		"page that finds nothing": {sqlite.List, []any{first, last, nil, nil, nil, "unknown", nil, nil, int64(10)}},
		"purge of executors":      {sqlite.PurgeExecutors, []any{now}},
	} {
		count, err := sqlite.Steps(t.Context(), n.Store, c.text, c.args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		taken[name] = count
	}
	return taken
}
