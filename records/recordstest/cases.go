package recordstest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/probate-dev/probate/records"
)

// caseRules are faults that users of other systems reported.
var caseRules = group{name: "Case", alone: true, rules: []rule{
	{"K03_AnOwnerThatOutlivedItsLeaseLeavesTheSuccessorAlone", func(f *fixture) {
		a := f.active(records.Registration{Policy: records.PolicyLease, LeaseTTL: 10 * time.Millisecond})
		b := f.active(records.Registration{})
		r := f.claim(a.ID)
		f.elapse(10 * time.Millisecond)
		f.fences(probed(a, b))
		successor := f.takesOver(takeOver(r, b.ID), r)
		f.shutOut(r)
		f.unchanged(successor)
		f.finalize(successor, outcome("the successor's", long))
	}},
	{"K05_AnOwnerThatFinalizesBetweenReadAndClaimIsReplayed", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		asked := reservation(a.ID)
		r := f.reserve(asked)
		read, err := f.store.Reserve(f.Context(), again(asked, b.ID))
		f.check(err)
		done := outcome("the owner's", long)
		f.finalize(r, done)
		f.fence(a.ID)
		_, err = f.store.TakeOver(f.Context(), takeOver(read.Record, b.ID))
		f.refused(err, records.ErrFenced)
		got, err := f.store.Reserve(f.Context(), again(asked, b.ID))
		f.check(err)
		f.equal("owned", got.Owned, false)
		f.equal("response", got.Record.Response, &done.Response)
	}},
	{"K12_ARetryBeforeThePurgeIsANewExecution", func(f *fixture) {
		a := f.active(records.Registration{})
		asked := reservation(a.ID)
		f.finalize(f.reserve(asked), outcome("old", 0))
		f.elapse(Grace)
		f.reserve(again(asked, a.ID))
	}},
	{"K12_AFreshClaimSurvivesARacingPurge", func(f *fixture) {
		for range 3 {
			f.reservesAgainstPurge(12)
		}
	}},
	{"K12_ARecordInProgressPastItsRetentionIsNeverPurged", func(f *fixture) {
		a := f.active(records.Registration{})
		asked := reservation(a.ID)
		f.finalize(f.reserve(asked), outcome("old", 0))
		f.elapse(Grace)
		r := f.reserve(again(asked, a.ID)) // over a row whose expiry lies behind
		f.elapse(2 * Grace)
		f.purges(1000, 0)
		f.unchanged(r)
	}},
	{"K13_NoCallTakesAnInstant", func(f *fixture) {
		// A node whose clock is wrong could do harm only by saying what time
		// it is. It has no way to: durations go in, never instants.
		store := reflect.TypeFor[records.Store]()
		for method := range store.Methods() {
			for in := range method.Type.Ins() {
				if in.Kind() != reflect.Interface && holdsInstant(in) {
					f.Errorf("%s takes an instant in its %s", method.Name, in)
				}
			}
		}
		if !holdsInstant(reflect.TypeFor[records.Reserved]()) {
			f.Error("the search finds no instant where there are some")
		}
	}},
	{"K13_NodesAgreeOnOneClock", func(f *fixture) {
		// Whichever node writes, instants follow each other as the writes did.
		nodes, a := f.nodes(3), f.active(records.Registration{})
		last := a.HeartbeatAt
		for i := range 12 {
			beat, err := nodes[i%3].Heartbeat(f.Context(), a.ID)
			f.check(err)
			got, err := nodes[(i+1)%3].Reserve(f.Context(), reservation(a.ID))
			f.check(err)
			f.check(nodes[(i+2)%3].Release(f.Context(), got.Record.ID, got.Record.Fence()))
			held := f.load(got.Record.ID).Record
			for _, at := range []time.Time{beat.HeartbeatAt, got.Record.CreatedAt, held.FinalizedAt} {
				if at.Before(last) {
					f.Errorf("round %d: %s follows %s", i, at, last)
				}
				last = at
			}
		}
	}},
	{"K41_AReconcilerWithAStaleRowChangesNothing", func(f *fixture) {
		a, b := f.active(records.Registration{}), f.active(records.Registration{})
		lost := f.unknown(a.ID)
		mine, err := f.store.ClaimUnknown(f.Context(), claimOf(lost, a.ID))
		f.check(err)
		f.finalize(mine, outcome("completed", long))
		completed := f.load(lost.ID).Record
		f.shutOut(lost)
		_, err = f.store.ClaimUnknown(f.Context(), claimOf(lost, b.ID))
		f.refused(err, records.ErrFenced)
		f.unchanged(completed)
	}},
	{"K47_ASecondReconcilerWithAnOldListRunsNothing", func(f *fixture) {
		dead := f.active(records.Registration{})
		f.claims(dead.ID, 5)
		f.fence(dead.ID)
		first, second := f.active(records.Registration{}), f.active(records.Registration{})
		list, err := f.store.Orphans(f.Context(), records.ID{}, 100)
		f.check(err)
		f.equal("orphans", len(list), 5)
		for i, r := range list {
			got := f.takesOver(takeOver(r, first.ID), r)
			if i%2 == 0 {
				f.finalize(got, outcome(fmt.Sprint(i), long))
			}
		}
		for _, r := range list {
			_, err := f.store.TakeOver(f.Context(), takeOver(r, second.ID))
			f.refused(err, records.ErrFenced)
		}
		held, err := f.store.InProgress(f.Context(), second.ID, records.ID{}, 100)
		f.check(err)
		f.equal("held by the second", len(held), 0)
	}},
}}

// holdsInstant reports whether a time.Time could be passed inside t.
func holdsInstant(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Time]() {
		return true
	}
	if kind := t.Kind(); kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Array {
		return holdsInstant(t.Elem())
	} else if kind != reflect.Struct {
		return false
	}
	for field := range t.Fields() {
		if holdsInstant(field.Type) {
			return true
		}
	}
	return false
}
