package recordstest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

var executorListRules = group{name: "ListExecutors", alone: true, rules: []rule{
	{"ReadsTheStatesAskedForOrAll", func(f *fixture) {
		made := map[records.ExecutorState]records.ExecutorID{
			records.Active:   f.active(records.Registration{}).ID,
			records.Draining: f.draining(records.Registration{}).ID,
			records.Gone:     f.gone(records.Registration{}).ID,
			records.Fenced:   f.fenced(records.Registration{}).ID,
		}
		for state, id := range made {
			f.lists([]records.ExecutorID{id}, state)
		}
		if list, err := f.store.ListExecutors(f.Context()); err != nil || len(list) != len(made) {
			f.Errorf("all states: %d executors, %v, want %d", len(list), err, len(made))
		}
		list, err := f.store.ListExecutors(f.Context(), records.Active, records.Fenced)
		if err != nil || len(list) != 2 {
			f.Errorf("two states: %d executors, %v, want 2", len(list), err)
		}
	}},
	{"AnEmptyFleetIsNoError", func(f *fixture) {
		f.lists(nil)
	}},
	{"OrdersBySlotAndThenByTime", func(f *fixture) {
		// Slots order by their bytes, whatever language the database speaks.
		b := f.active(records.Registration{Slot: "b"})
		first := f.fenced(records.Registration{Slot: "a"})
		second := f.gone(records.Registration{Slot: "a"})
		a := f.active(records.Registration{Slot: "a"})
		upper := f.active(records.Registration{Slot: "B"})
		f.beat(b.ID)
		f.beat(a.ID)
		f.lists([]records.ExecutorID{upper.ID, first.ID, second.ID, a.ID, b.ID})
	}},
	{"ReadsWholeRows", func(f *fixture) {
		e := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: 1500 * time.Millisecond})
		f.check(f.store.Attest(f.Context(), e.ID, true))
		f.fence(e.ID)
		list, err := f.store.ListExecutors(f.Context())
		f.check(err)
		if len(list) != 1 {
			f.Fatalf("%d executors, want 1", len(list))
		}
		f.equal("row", ageless(list[0]), ageless(f.executor(e.ID)))
	}},
}}

func (f *fixture) lists(want []records.ExecutorID, states ...records.ExecutorState) {
	f.Helper()
	list, err := f.store.ListExecutors(f.Context(), states...)
	f.check(err)
	var got []records.ExecutorID
	for _, e := range list {
		got = append(got, e.ID)
	}
	f.equal("executors", got, want)
}

var recordListRules = group{name: "ListRecords", alone: true, rules: []rule{
	{"InProgressReadsAnExecutorsRecordsByPage", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		mine := f.claims(a.ID, 5)
		f.claims(b.ID, 2)
		f.finalize(f.claim(a.ID), outcome("done", long))
		f.pages(mine, func(after records.ID, limit int) ([]records.Record, error) {
			return f.store.InProgress(f.Context(), a.ID, after, limit)
		})
	}},
	{"OrphansReadsRecordsOfTerminalExecutorsByPage", func(f *fixture) {
		fenced, gone, lives := f.active(records.Registration{}), f.active(records.Registration{}), f.active(records.Registration{})
		draining := f.active(records.Registration{})
		orphans := append(f.claims(fenced.ID, 3), f.claims(gone.ID, 2)...)
		f.claims(lives.ID, 2)
		f.claims(draining.ID, 2)
		f.finalize(f.claim(fenced.ID), outcome("done", long))
		f.fence(fenced.ID)
		for _, id := range []records.ExecutorID{gone.ID, draining.ID} {
			f.check(f.store.Drain(f.Context(), id))
		}
		f.check(f.store.Retire(f.Context(), gone.ID))
		f.pages(orphans, func(after records.ID, limit int) ([]records.Record, error) {
			return f.store.Orphans(f.Context(), after, limit)
		})
	}},
	{"AnOrphanThatWasTakenOverIsNoneAnyMore", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		r := f.claim(a.ID)
		f.fence(a.ID)
		got := f.takesOver(takeOver(r, b.ID), r)
		orphans, err := f.store.Orphans(f.Context(), records.ID{}, 10)
		f.check(err)
		f.equal("orphans", len(orphans), 0)
		held, err := f.store.InProgress(f.Context(), b.ID, records.ID{}, 10)
		f.check(err)
		f.equal("in progress", held, []records.Record{got})
	}},
	{"ListReadsEveryRecordOnceByPage", func(f *fixture) {
		a := f.active(records.Registration{})
		all := f.claims(a.ID, 7)
		f.finalize(all[0], outcome("done", long))
		f.check(f.store.Release(f.Context(), all[1].ID, all[1].Fence()))
		for _, limit := range []int{1, 3, 7, 1000} {
			f.equal("ids", idsOf(f.listed(records.Filter{Limit: limit})), idsOf(all))
		}
	}},
	{"ListFilters", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		r := reservation(a.ID)
		r.Realm, r.Key, r.Operation = "other\x00realm", "other\xffkey", "other operation"
		other := f.reserve(r)
		f.finalize(other, outcome("done", long))
		plain := f.claim(b.ID)
		for _, c := range []struct {
			filter records.Filter
			want   []records.Record
		}{
			{records.Filter{Realm: &other.Realm}, []records.Record{other}},
			{records.Filter{Key: &other.Key}, []records.Record{other}},
			{records.Filter{Operation: &other.Operation}, []records.Record{other}},
			{records.Filter{State: records.Finalized}, []records.Record{other}},
			{records.Filter{State: records.InProgress}, []records.Record{plain}},
			{records.Filter{Executor: a.ID}, []records.Record{other}},
			{records.Filter{Executor: b.ID, Realm: &plain.Realm, State: records.InProgress}, []records.Record{plain}},
			{records.Filter{Executor: b.ID, Realm: &other.Realm}, nil},
			{records.Filter{State: records.Unknown}, nil},
			{records.Filter{OlderThan: long}, nil},
			{records.Filter{Key: new(string)}, nil},
		} {
			c.filter.Limit = 1
			f.equal("ids", idsOf(f.listed(c.filter)), idsOf(c.want))
		}
	}},
	{"ListKnowsAgesByTheDatabasesClock", func(f *fixture) {
		a := f.active(records.Registration{})
		old := f.claim(a.ID)
		f.elapse(20 * time.Millisecond)
		got := f.listed(records.Filter{OlderThan: 20 * time.Millisecond, Limit: 10})
		f.equal("ids", idsOf(got), idsOf([]records.Record{old}))
	}},
	{"ListLeavesRequestsAndBodiesOut", func(f *fixture) {
		a := f.active(records.Registration{})
		r := reservation(a.ID)
		r.Request = []byte("stored request")
		done := outcome("done", long)
		f.finalize(f.reserve(r), done)
		got := f.listed(records.Filter{Limit: 10})
		want := f.load(r.ID).Record
		want.Request, want.Response.Body = nil, nil
		if len(got) == 1 && got[0].Response != nil && got[0].Response.Headers == nil {
			want.Response.Headers = nil // they may be left out as well
		}
		f.equal("records", got, []records.Record{want})
	}},
	{"ListRefusesAFilterThatMeansNothing", func(f *fixture) {
		for _, filter := range []records.Filter{{}, {Limit: -1}, {Limit: 1001}, {Limit: 1, State: "lost"}, {Limit: 1, OlderThan: -1}} {
			_, err := f.store.List(f.Context(), filter)
			f.refused(err, records.ErrInvalid)
		}
	}},
}}

// claims claims n fresh keys and returns the records in order of id.
func (f *fixture) claims(by records.ExecutorID, n int) []records.Record {
	f.Helper()
	var all []records.Record
	for range n {
		r := reservation(by)
		r.Request = []byte("stored request")
		all = append(all, f.reserve(r))
	}
	return all
}

// pages demands that reading with any limit yields the records in order, each
// once.
func (f *fixture) pages(want []records.Record, read func(after records.ID, limit int) ([]records.Record, error)) {
	f.Helper()
	slices.SortFunc(want, func(a, b records.Record) int { return a.ID.Compare(b.ID) })
	for _, limit := range []int{1, 2, len(want), 100} {
		var got []records.Record
		var after records.ID
		for {
			page, err := read(after, limit)
			f.check(err)
			if len(page) == 0 {
				break
			}
			if len(page) > limit {
				f.Fatalf("%d records in a page of %d", len(page), limit)
			}
			got = append(got, page...)
			after = page[len(page)-1].ID
		}
		f.equal("records", got, want)
	}
}

// listed reads a listing to its end, in the order in which it comes.
func (f *fixture) listed(filter records.Filter) []records.Record {
	f.Helper()
	var all []records.Record
	for {
		page, err := f.store.List(f.Context(), filter)
		f.check(err)
		if len(page.Records) > filter.Limit {
			f.Fatalf("%d records in a page of %d", len(page.Records), filter.Limit)
		}
		all = append(all, page.Records...)
		if !page.More {
			break
		}
		if page.Next.Compare(filter.After) <= 0 {
			f.Fatalf("the page after %s goes on after %s", filter.After, page.Next)
		}
		filter.After = page.Next
	}
	if !slices.IsSortedFunc(all, func(a, b records.Record) int { return a.ID.Compare(b.ID) }) {
		f.Errorf("not in order of id: %v", all)
	}
	return all
}

// idsOf is the ids in order.
func idsOf(list []records.Record) []records.ID {
	ids := make([]records.ID, 0, len(list))
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	slices.SortFunc(ids, records.ID.Compare)
	return ids
}

var fleetRules = group{name: "Fleet", alone: true, rules: []rule{
	{"ReadsTheClusterRow", func(f *fixture) {
		got, err := f.store.Fleet(f.Context())
		f.check(err)
		if got.Cluster == "" || got.Schema < 1 || got.MinBinary < 1 || got.MinBinary > got.Schema {
			f.Errorf("fleet = %+v", got)
		}
	}},
	{"RekeyMovesItFromOneNameToAnother", func(f *fixture) {
		before, err := f.store.Fleet(f.Context())
		f.check(err)
		f.check(f.store.Rekey(f.Context(), before.Cluster, "copy", "operator"))
		after, err := f.store.Fleet(f.Context())
		f.check(err)
		before.Cluster = "copy"
		f.equal("fleet", after, before)
	}},
	{"RekeyRefusesAnotherName", func(f *fixture) {
		before, err := f.store.Fleet(f.Context())
		f.check(err)
		f.refused(f.store.Rekey(f.Context(), "not "+before.Cluster, "copy", "operator"), records.ErrWrongCluster)
		after, err := f.store.Fleet(f.Context())
		f.check(err)
		f.equal("fleet", after, before)
	}},
	{"RekeyRefusesANameThatNoFleetMayHave", func(f *fixture) {
		before, err := f.store.Fleet(f.Context())
		f.check(err)
		for _, name := range []string{"", "\x00", "\xff", strings.Repeat("c", 256)} {
			f.refused(f.store.Rekey(f.Context(), before.Cluster, name, "operator"), records.ErrInvalid)
		}
		after, err := f.store.Fleet(f.Context())
		f.check(err)
		f.equal("fleet", after, before)
	}},
	{"OneOfManyRekeys", func(f *fixture) {
		before, err := f.store.Fleet(f.Context())
		f.check(err)
		nodes := f.nodes(2)
		landed := 0
		for _, err := range atOnce(8, func(i int) error {
			return nodes[i%2].Rekey(f.Context(), before.Cluster, "copy "+string(rune('a'+i)), "operator")
		}) {
			switch {
			case err == nil:
				landed++
			case !errors.Is(err, records.ErrWrongCluster):
				f.Errorf("refused with %v", err)
			}
		}
		f.equal("landed", landed, 1)
	}},
}}
