package sqlite_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// TestPlan: what runs often, or in the background, finds its rows by an index
// and never reads the table from end to end.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Config{})
	id := make([]byte, 32)
	for name, c := range map[string]struct {
		text  string
		args  []any
		index string
	}{
		"Load":              {sqlite.Load, []any{id}, "USING INDEX sqlite_autoindex_records_1 (id=?)"},
		"Finalize":          {sqlite.Finalize, []any{1, id, id, 1, 1, 1, id, id}, "USING INDEX sqlite_autoindex_records_1 (id=?)"},
		"TakeOver":          {sqlite.TakeOver, []any{id, id, id, id, 1, false}, "USING INDEX records_in_progress (executor_id=? AND id=?)"},
		"Purge":             {sqlite.Purge, []any{1, 10}, "records_expiry (expires_at<?)"},
		"StrayFlows":        {sqlite.StrayFlows, []any{1, "", 1, 10}, "USING INDEX flows_awaited (id>?)"},
		"InProgress":        {sqlite.InProgress, []any{id, id, 10}, "USING INDEX records_in_progress (executor_id=? AND id>?)"},
		"Orphans":           {sqlite.Orphans, []any{id, 10}, "USING COVERING INDEX records_in_progress (executor_id=? AND id>?)"},
		"ListBound":         {sqlite.ListBound, []any{id, 10}, "USING COVERING INDEX sqlite_autoindex_records_1 (id>?)"},
		"List":              {sqlite.List, []any{id, id, nil, nil, nil, nil, nil, nil, 10}, "USING INDEX sqlite_autoindex_records_1 (id>? AND id<?)"},
		"ReleaseByOperator": {sqlite.ReleaseByOperator, []any{1, id, 1, id}, "USING INDEX sqlite_autoindex_records_1 (id=?)"},
		"ResolveByOperator": {sqlite.ResolveByOperator, []any{1, id, 1, id, 1, 1, id, id, id}, "USING INDEX sqlite_autoindex_records_1 (id=?)"},
		"EraseRecord":       {sqlite.EraseRecord, []any{id, id}, "USING INDEX sqlite_autoindex_records_1 (id=?)"},
		"ExamineRealm":      {sqlite.ExamineRealm, []any{id, id, id}, "USING INDEX sqlite_autoindex_records_1 (id>? AND id<?)"},
		"ReadEvents":        {sqlite.ReadEvents, []any{1, 2, nil, nil, nil, 10}, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
		"EventsOfRecord":    {sqlite.EventsOfRecord, []any{1, 2, id, nil, nil, 10}, "USING INDEX events_record (record_id=? AND n>? AND n<?)"},
		"EventsOfExecutor":  {sqlite.EventsOfExecutor, []any{1, 2, nil, id, nil, 10}, "USING INDEX events_executor (executor_id=? AND n>? AND n<?)"},
		"BoundOfRecord":     {sqlite.BoundOfRecord, []any{1, 2, id}, "USING COVERING INDEX events_record (record_id=? AND n>?)"},
		"PurgeEvents":       {sqlite.PurgeEvents, []any{1, 10}, "events_at (at<?)"},

		"PurgeExecutors": {sqlite.PurgeExecutors, []any{1}, "records_in_progress (executor_id=?)"},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := sqlite.Explain(t.Context(), s, c.text, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(steps, "\n")
			if !strings.Contains(plan, c.index) {
				t.Errorf("the plan does not hold %q:\n%s", c.index, plan)
			}
			for _, step := range steps {
				if (strings.HasPrefix(step, "SCAN r") || strings.HasPrefix(step, "SCAN v")) && !strings.Contains(step, "INDEX records_in_progress") {
					t.Errorf("the plan scans: %s", step)
				}
			}
		})
	}
}

// TestList: a page examines a bounded number of rows, so a filter that fits
// nothing ends a page early and not the listing.
func TestList(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Config{})
	a := register(t, s, records.Registration{})
	const rows, window = 250, 100
	for range rows {
		reserve(t, s, a.ID)
	}
	sqlite.SetListWindow(s, window)
	for name, c := range map[string]struct {
		filter records.Filter
		pages  int
		found  int
	}{
		"NothingFits":        {records.Filter{Limit: 10, State: records.Unknown}, 3, 0},
		"EverythingFits":     {records.Filter{Limit: 1000}, 3, rows},
		"ALimitBelowAWindow": {records.Filter{Limit: 60}, 6, rows}, // 60 and 60 of each run of 100, from where it stopped
	} {
		t.Run(name, func(t *testing.T) {
			pages, seen := 0, make(map[records.ID]bool)
			for more := true; more; pages++ {
				page, err := s.List(t.Context(), c.filter)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Records {
					seen[r.ID] = true
				}
				more, c.filter.After = page.More, page.Next
			}
			if len(seen) != c.found {
				t.Errorf("%d records in all pages, want %d", len(seen), c.found)
			}
			if pages < rows/window || pages > c.pages {
				t.Errorf("%d pages, want %d to %d", pages, rows/window, c.pages)
			}
		})
	}
}

// TestPurge: a large purge is several transactions, and still counts right.
func TestPurge(t *testing.T) {
	t.Parallel()
	n := newNode(t, sqlite.Config{})
	a := n.register(records.Registration{})
	const rows = 600
	for range rows {
		r := reserve(t, n.Store, a.ID)
		if err := n.Release(t.Context(), r.ID, r.Fence()); err != nil {
			t.Fatal(err)
		}
	}
	n.clock.Advance(time.Hour)
	for _, step := range []struct{ limit, want int }{{0, 0}, {501, 501}, {1000, rows - 501}, {1000, 0}} {
		if got, err := n.Store.Purge(t.Context(), step.limit); err != nil || got != step.want {
			t.Errorf("purge(%d) = %d, %v; want %d", step.limit, got, err, step.want)
		}
	}
}

// TestOrphans: the sweep steps over executors without records and merges the
// pages of those that have some, in order of id.
func TestOrphans(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Config{})
	want := make(map[records.ID]bool)
	for i := range 5 {
		e := register(t, s, records.Registration{})
		for range 10 {
			r := reserve(t, s, e.ID)
			want[r.ID] = i < 3
		}
		if i >= 3 {
			continue // these two live
		}
		if _, err := s.FenceByOperator(t.Context(), records.Condemnation{Executor: e.ID, Actor: "operator", Reason: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	var last records.ID
	found := 0
	for {
		page, err := s.Orphans(t.Context(), last, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			if !want[r.ID] || r.ID.Compare(last) <= 0 {
				t.Errorf("record %s: not an orphan, or out of order", r.ID)
			}
			last = r.ID
			found++
		}
		if len(page) < 7 {
			break
		}
	}
	if found != 30 {
		t.Errorf("%d orphans, want 30", found)
	}
}

// TestBytes: what a client sent comes back byte for byte, and a slot that looks
// like a time stays a text.
func TestBytes(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Config{})
	a := register(t, s, records.Registration{Slot: "2026-01-02T03:04:05.100Z"})
	if e, err := s.Heartbeat(t.Context(), a.ID); err != nil || e.Slot != a.Slot || a.Slot != "2026-01-02T03:04:05.100Z" {
		t.Errorf("slot = %q, then %q, %v", a.Slot, e.Slot, err)
	}
	random := make([]byte, 3000)
	rand.Read(random)
	r := reservation(a.ID)
	r.Realm, r.Key, r.Operation, r.Resource = "\x00\xff", string(random), "", "2026-01-02T03:04:05Z"
	if got, err := s.Reserve(t.Context(), r); err != nil || !got.Owned {
		t.Fatal(got.Owned, err)
	}
	held, err := s.Load(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if h := held.Record; h.Realm != r.Realm || h.Key != r.Key || h.Operation != r.Operation || h.Resource != r.Resource {
		t.Error("realm, key, operation or resource changed on the way")
	}
}
