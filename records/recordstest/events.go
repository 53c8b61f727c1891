package recordstest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

// events reads all events that pass a filter, page by page.
func (f *fixture) events(filter records.EventFilter) (all []records.Event) {
	f.Helper()
	for {
		page, err := f.store.Events(f.Context(), filter)
		f.check(err)
		all = append(all, page.Events...)
		if !page.More {
			return all
		}
		if page.Next == filter.After {
			f.Fatalf("there is more after %q, which is where the page began", filter.After)
		}
		filter.After = page.Next
	}
}

// saw is something that a node noticed about a record nobody else has.
func saw(n int) records.Occurrence {
	return records.Occurrence{
		Kind: records.EventTakenOver, Record: reservation(newExecutorID()).ID, Epoch: int64(n), Executor: newExecutorID(),
		Reason: fmt.Sprintf("number %d", n), Before: "in_progress", After: "in_progress",
	}
}

func (f *fixture) notes(all ...records.Occurrence) {
	f.Helper()
	f.check(f.store.Note(f.Context(), all))
}

var eventRules = group{name: "Events", alone: true, rules: []rule{
	{"ComeBackWholeAndInOrder", func(f *fixture) {
		seen := []records.Occurrence{
			saw(1),
			{Kind: records.EventProbed},
			{Kind: records.EventPurged, Actor: "ada", Reason: "7 records"},
			{Kind: records.EventFenced, Executor: newExecutorID()},
		}
		before := f.active(records.Registration{})
		f.notes(seen...)
		got := f.events(records.EventFilter{Limit: 10})
		want := make([]records.Event, len(seen))
		for i, o := range seen {
			want[i] = records.Event{
				Kind: o.Kind, Record: o.Record, Epoch: o.Epoch, Executor: o.Executor,
				Actor: o.Actor, Reason: o.Reason, Before: o.Before, After: o.After,
			}
		}
		after := f.active(records.Registration{})
		for _, e := range got {
			if e.At.Before(before.HeartbeatAt) || e.At.After(after.HeartbeatAt) {
				f.Errorf("noted at %s, between %s and %s", e.At, before.HeartbeatAt, after.HeartbeatAt)
			}
		}
		f.equal("events", dateless(got), want)
	}},
	{"HappenedAsLongAgoAsIsSaid", func(f *fixture) {
		late, now := saw(1), saw(2)
		late.Ago = time.Hour
		f.notes(late, now)
		got := f.events(records.EventFilter{Limit: 10})
		f.equal("between them", got[1].At.Sub(got[0].At).Round(time.Minute), time.Hour)
	}},
	{"NoneAreNotedAsNone", func(f *fixture) {
		f.notes()
		f.equal("events", len(f.events(records.EventFilter{Limit: 10})), 0)
	}},
	{"AreReadByPage", func(f *fixture) {
		for n := range 7 {
			f.notes(saw(n))
		}
		all := f.events(records.EventFilter{Limit: 1000})
		f.equal("events", len(all), 7)
		for _, limit := range []int{1, 3, 7} {
			f.equal(fmt.Sprintf("by %d", limit), f.events(records.EventFilter{Limit: limit}), all)
		}
		page, err := f.store.Events(f.Context(), records.EventFilter{Limit: 7})
		f.check(err)
		f.equal("more", page.More, false)
		f.notes(saw(8))
		f.equal("what came after the last page", len(f.events(records.EventFilter{Limit: 7, After: page.Next})), 1)
	}},
	{"AreFilteredByRecordExecutorAndKind", func(f *fixture) {
		a, b := saw(1), saw(2)
		c := records.Occurrence{Kind: records.EventFenced, Record: a.Record, Executor: b.Executor}
		f.notes(a, b, c, saw(4))
		for what, q := range map[string]struct {
			filter records.EventFilter
			want   []int
		}{
			"record":              {records.EventFilter{Record: a.Record}, []int{0, 2}},
			"executor":            {records.EventFilter{Executor: b.Executor}, []int{1, 2}},
			"kind":                {records.EventFilter{Kind: records.EventTakenOver}, []int{0, 1, 3}},
			"record and executor": {records.EventFilter{Record: a.Record, Executor: b.Executor}, []int{2}},
			"executor and kind":   {records.EventFilter{Executor: b.Executor, Kind: records.EventFenced}, []int{2}},
			"nothing fits":        {records.EventFilter{Record: b.Record, Kind: records.EventErased}, nil},
		} {
			all := f.events(records.EventFilter{Limit: 10})
			var want []records.Event
			for _, i := range q.want {
				want = append(want, all[i])
			}
			for _, limit := range []int{1, 10} {
				q.filter.Limit = limit
				f.equal(what, f.events(q.filter), want)
			}
		}
	}},
	{"ReasonsAreCut", func(f *fixture) {
		o := saw(1)
		o.Reason = "a\x00b\xff" + strings.Repeat("ü", records.MaxReasonBytes)
		f.notes(o)
		got := f.eventsOf(o.Record)[0].Reason
		want := "a\uFFFDb\uFFFD" + strings.Repeat("ü", (records.MaxReasonBytes-8)/2)
		f.equal("reason", got, want)
	}},
	{"RefuseWhatCouldNeverBeNoted", func(f *fixture) {
		for what, spoil := range map[string]func(*records.Occurrence){
			"no kind":       func(o *records.Occurrence) { o.Kind = "" },
			"a long kind":   func(o *records.Occurrence) { o.Kind = records.EventKind(strings.Repeat("k", 65)) },
			"a NUL in who":  func(o *records.Occurrence) { o.Actor = "a\x00" },
			"a long name":   func(o *records.Occurrence) { o.Actor = strings.Repeat("a", 256) },
			"the future":    func(o *records.Occurrence) { o.Ago = -1 },
			"a NUL before":  func(o *records.Occurrence) { o.Before = "\x00" },
			"a broken end":  func(o *records.Occurrence) { o.After = "\xff" },
			"a long change": func(o *records.Occurrence) { o.After = strings.Repeat("a", records.MaxReasonBytes+1) },
		} {
			bad := saw(2)
			spoil(&bad)
			f.refusedFor(what, f.store.Note(f.Context(), []records.Occurrence{saw(1), bad}))
		}
		f.refusedFor("too many", f.store.Note(f.Context(), slices.Repeat([]records.Occurrence{saw(1)}, records.MaxOccurrences+1)))
		for what, filter := range map[string]records.EventFilter{
			"no limit": {}, "a large limit": {Limit: 1001}, "no cursor": {Limit: 1, After: "yesterday"}, "a cursor below": {Limit: 1, After: "-1"},
		} {
			_, err := f.store.Events(f.Context(), filter)
			f.refusedFor(what, err)
		}
		f.equal("events", len(f.events(records.EventFilter{Limit: 10})), 0)
	}},
	{"AsManyAsGoAreNotedAtOnce", func(f *fixture) {
		f.notes(slices.Repeat([]records.Occurrence{saw(1)}, records.MaxOccurrences)...)
		f.equal("events", len(f.events(records.EventFilter{Limit: 1000})), records.MaxOccurrences)
	}},
	{"ArePurgedByAgeTheOldestFirst", func(f *fixture) {
		for n := range 5 {
			o := saw(n)
			o.Ago = time.Duration(n) * time.Hour
			f.notes(o)
		}
		purged := func(limit, want int) {
			f.Helper()
			n, err := f.store.PurgeEvents(f.Context(), 90*time.Minute, limit)
			f.check(err)
			f.equal("purged", n, want)
		}
		purged(0, 0)
		purged(2, 2)
		var left []int64
		for _, e := range f.events(records.EventFilter{Limit: 10}) {
			left = append(left, e.Epoch)
		}
		f.equal("left", left, []int64{0, 1, 2})
		purged(10, 1)
		purged(10, 0)
	}},
	{"ANumberIsNotUsedAgainAfterAPurge", func(f *fixture) {
		late := saw(1)
		late.Ago = time.Hour
		f.notes(late, late)
		page, err := f.store.Events(f.Context(), records.EventFilter{Limit: 10})
		f.check(err)
		f.check(errOf(f.store.PurgeEvents(f.Context(), time.Minute, 10)))
		f.notes(saw(2))
		f.equal("events after the cursor", len(f.events(records.EventFilter{Limit: 10, After: page.Next})), 1)
	}},
	{"APageThatWasReadDoesNotChange", func(f *fixture) {
		// Writers are many and slow ones among them; a reader follows the end.
		nodes, writers := f.nodes(3), 12
		read := []records.Event{}
		for n := range 3 {
			f.check(nodes[n].Note(f.Context(), []records.Occurrence{saw(n)}))
			now := f.events(records.EventFilter{Limit: 1000})
			f.equal("what was read before", now[:min(len(read), len(now))], read)
			read = now
		}
		stop := make(chan struct{})
		var followed []records.Event
		errs := atOnce(writers+1, func(i int) error {
			if i < writers {
				if i == 0 {
					defer close(stop)
				}
				for n := range 15 {
					if err := nodes[i%3].Note(f.Context(), slices.Repeat([]records.Occurrence{saw(n)}, 1+i*7%5)); err != nil {
						return err
					}
				}
				return nil
			}
			after := ""
			for {
				page, err := f.store.Events(f.Context(), records.EventFilter{Limit: 10, After: after})
				if err != nil {
					return err
				}
				followed, after = append(followed, page.Events...), page.Next
				select {
				case <-stop:
					if len(followed) > 0 {
						return nil
					}
				default:
				}
			}
		})
		for _, err := range errs {
			f.check(err)
		}
		all := f.events(records.EventFilter{Limit: 1000})
		if len(followed) == 0 || len(followed) > len(all) {
			f.Fatalf("followed %d of %d events", len(followed), len(all))
		}
		f.equal("what the reader followed", followed, all[:len(followed)])
	}},
	{"AFenceByHandLeavesOne", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.draining(records.Registration{LeaseTTL: 5 * time.Millisecond})
		f.elapse(10 * time.Millisecond)
		for range 2 { // a repeat leaves none
			f.check(errOf(f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: a.ID, Actor: "ada", Reason: "its host is off", Force: true})))
			f.check(errOf(f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: b.ID, Actor: "bob", Reason: "silent"})))
		}
		for e, want := range map[records.ExecutorID]records.Event{
			a.ID: {Kind: records.EventFenced, Executor: a.ID, Actor: "ada", Reason: "its host is off", Before: "active", After: "fenced"},
			b.ID: {Kind: records.EventFenced, Executor: b.ID, Actor: "bob", Reason: "silent", Before: "draining", After: "fenced"},
		} {
			got := dateless(f.events(records.EventFilter{Executor: e, Limit: 10}))
			f.equal("events", got, []records.Event{want})
		}
	}},
	{"AFenceByHandThatIsRefusedLeavesNone", func(f *fixture) {
		a := f.active(records.Registration{})
		_, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: a.ID, Actor: "ada", Reason: "test"})
		f.refused(err, records.ErrLeaseHeld)
		_, err = f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: newExecutorID(), Actor: "ada", Reason: "test", Force: true})
		f.refused(err, records.ErrNotFound)
		f.equal("events", len(f.events(records.EventFilter{Limit: 10})), 0)
	}},
	{"ARekeyLeavesOne", func(f *fixture) {
		before, err := f.store.Fleet(f.Context())
		f.check(err)
		f.check(f.store.Rekey(f.Context(), before.Cluster, "copy", "ada"))
		f.refused(f.store.Rekey(f.Context(), before.Cluster, "copy", "ada"), records.ErrWrongCluster)
		f.refused(f.store.Rekey(f.Context(), "copy", "other", "a\x00"), records.ErrInvalid)
		f.equal("events", dateless(f.events(records.EventFilter{Limit: 10})), []records.Event{
			{Kind: records.EventRekeyed, Actor: "ada", Before: before.Cluster, After: "copy"},
		})
	}},
}}
