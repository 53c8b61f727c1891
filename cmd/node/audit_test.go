package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

// audited is an audit over an embedded store on whose way things go wrong.
type audited struct {
	*audit
	faulty *recordstest.Faulty
}

func newAudited(t *testing.T, level string) audited {
	t.Helper()
	path, _ := sqlitePath(sqliteStore(t))
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	faulty := recordstest.NewFaulty(s)
	return audited{newAudit(level, faulty, newMetrics(), slog.New(slog.DiscardHandler)), faulty}
}

// begin runs the audit until the function that it returns has ended it.
func (a audited) begin(t *testing.T) (finish func()) {
	var running sync.WaitGroup
	running.Go(func() { a.run(t.Context()) })
	return sync.OnceFunc(func() {
		a.end()
		running.Wait()
	})
}

func (a audited) events(t *testing.T) []records.Event {
	t.Helper()
	return eventsIn(t, a.faulty.Store)
}

func eventsIn(t *testing.T, s records.Audit) []records.Event {
	t.Helper()
	page, err := s.Events(t.Context(), records.EventFilter{Limit: 1000})
	if err != nil || page.More {
		t.Fatalf("more: %t, %v", page.More, err)
	}
	return page.Events
}

func (a audited) lost(t *testing.T) int {
	t.Helper()
	var m dto.Metric
	if err := a.dropped.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.Counter.GetValue())
}

// aLife tells everything that can happen to records of one executor.
func aLife(to takeover.Events) (fresh, taken records.Record) {
	fresh = records.Record{ID: records.Key{Key: "fresh"}.ID(), Epoch: 7, Executor: records.ExecutorID{1}, State: records.InProgress}
	taken = records.Record{ID: records.Key{Key: "taken"}.ID(), Epoch: 8, Executor: records.ExecutorID{2}, State: records.InProgress, Takeovers: 1}
	to.Claimed(fresh)
	to.Waited(fresh)
	to.Probed(fresh, probe.Running)
	to.Probed(fresh, probe.Down)
	to.Fenced(fresh.Executor, "refused, twice")
	to.TookOver(taken, "executor fenced")
	to.Reconciled(taken, takeover.Finding{Kind: takeover.Pending, Reason: "no answer"})
	to.Settled(taken, records.Finalized, time.Second, "")
	to.Settled(fresh, records.Finalized, time.Second, "")
	to.Settled(fresh, records.Released, time.Second, "status 401")
	to.Settled(fresh, records.Unknown, time.Second, "work panicked: no ink\ngoroutine 1 [running]:")
	to.Purged(3)
	return fresh, taken
}

func TestAudit(t *testing.T) {
	t.Parallel()

	unusual := []string{
		"probed: down", "fenced: refused, twice", "taken_over: executor fenced", "reconciled: pending: no answer",
		"finalized: ", "unknown: work panicked: no ink",
	}
	for level, want := range map[string][]string{
		auditOff:     nil,
		auditUnusual: unusual,
		auditAll: {
			"claimed: ", "waited: ", "probed: running", unusual[0], unusual[1], unusual[2], unusual[3],
			unusual[4], "finalized: ", "released: status 401", unusual[5],
		},
	} {
		t.Run("Notes/"+level, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, level)
			finish := a.begin(t)
			aLife(a)
			finish()
			var got []string
			for _, e := range a.events(t) {
				got = append(got, fmt.Sprintf("%s: %s", e.Kind, e.Reason))
			}
			if !slices.Equal(got, want) {
				t.Errorf("noted %q, want %q", got, want)
			}
			if n := a.lost(t); n != 0 {
				t.Errorf("%d events are lost", n)
			}
		})
	}

	t.Run("SaysWhichRecordAtWhichEpochByWhom", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditUnusual)
		finish := a.begin(t)
		fresh, taken := aLife(a)
		finish()
		for _, e := range a.events(t) {
			want := fresh
			if e.Kind == records.EventFenced {
				want = records.Record{Executor: fresh.Executor}
			} else if slices.Contains([]records.EventKind{records.EventTakenOver, records.EventReconciled, records.EventFinalized}, e.Kind) {
				want = taken
			}
			if e.Record != want.ID || e.Epoch != want.Epoch || e.Executor != want.Executor || e.Actor != "" {
				t.Errorf("%+v, want it about %s of %s at %d", e, want.ID, want.Executor, want.Epoch)
			}
			if e.Kind == records.EventUnknown && (e.Before != "in_progress" || e.After != "unknown") {
				t.Errorf("%s: from %q to %q", e.Kind, e.Before, e.After)
			}
		}
	})

	t.Run("ManyEventsAreFewStatements", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditAll)
		for range auditQueue {
			a.Waited(records.Record{})
		}
		finish := a.begin(t)
		finish()
		if n := a.faulty.Calls(recordstest.Note); n > 1+auditQueue/records.MaxOccurrences {
			t.Errorf("%d events took %d statements", auditQueue, n)
		}
	})

	t.Run("BlocksNobodyAndCountsWhatItLoses", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditAll)
		for range auditQueue + 5 { // nobody takes them
			a.Waited(records.Record{})
		}
		if n := a.lost(t); n != 5 {
			t.Errorf("%d events are lost, want 5", n)
		}
	})

	t.Run("KeepsEventsThroughAnOutage", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditUnusual)
		heal := a.faulty.Always(recordstest.Note, recordstest.Down)
		finish := a.begin(t)
		defer finish()
		a.Fenced(records.ExecutorID{1}, "before the outage ended")
		await(t, "the store was asked in vain", func() bool { return a.faulty.Calls(recordstest.Note) > 0 })
		heal()
		await(t, "the event is noted", func() bool { return len(a.events(t)) == 1 })
		if n := a.lost(t); n != 0 {
			t.Errorf("%d events are lost", n)
		}
	})

	t.Run("AnEventHappenedWhenItDid", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditUnusual)
		a.queue <- witnessed{records.Occurrence{Kind: records.EventFenced}, time.Now().Add(-time.Hour)}
		a.Fenced(records.ExecutorID{1}, "now")
		finish := a.begin(t)
		finish()
		got := a.events(t)
		if len(got) != 2 || got[1].At.Sub(got[0].At).Round(time.Minute) != time.Hour {
			t.Errorf("events at %+v, want an hour between them", got)
		}
	})

	t.Run("WhatTheStoreCanNeverTakeIsLostAtOnce", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t, auditUnusual)
		a.queue <- witnessed{records.Occurrence{}, time.Now()} // of no kind
		finish := a.begin(t)
		finish()
		if n := a.lost(t); n != 1 {
			t.Errorf("%d events are lost, want 1", n)
		}
	})

	t.Run("ItsEndIsBounded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			faulty := recordstest.NewFaulty(nil)
			faulty.Always(recordstest.Note, recordstest.Down)
			a := audited{newAudit(auditUnusual, faulty, newMetrics(), slog.New(slog.DiscardHandler)), faulty}
			finish := a.begin(t)
			a.Fenced(records.ExecutorID{1}, "and nobody will know")
			<-time.After(time.Minute)
			begun := time.Now()
			finish()
			if took := time.Since(begun); took > auditLast {
				t.Errorf("the end took %s", took)
			}
			if n := a.lost(t); n != 1 {
				t.Errorf("%d events are lost, want 1", n)
			}
		})
	})

	for level, want := range map[string]string{auditUnusual: "", auditAll: "claimed finalized waited"} {
		t.Run("OfTwoNodes/"+level, func(t *testing.T) {
			t.Parallel()
			s, client, store := newService(t), browser(t), sqliteStore(t)
			a := startEmbedded(t, "--config", configure(t, store, s.URL), "--audit.level", level)
			b := startEmbedded(t, "--config", configure(t, store, s.URL), "--audit.level", level)
			ready(t, client, a.public)
			ready(t, client, b.public)
			var asking sync.WaitGroup
			asking.Go(func() { _ = order(t.Context(), client, a.public, "k", "hold") })
			<-s.begun
			asking.Go(func() { _ = order(t.Context(), client, b.public, "k", "hold") })
			await(t, "the duplicate waits", func() bool {
				_, text := get(t.Context(), client, b.internal+"/metrics")
				return strings.Contains(text, "probate_waiters 1")
			})
			close(s.release)
			asking.Wait()
			for _, n := range []*embedded{a, b} {
				n.signals <- syscall.SIGTERM
				<-n.ended
			}
			path, _ := sqlitePath(store)
			left, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
			if err != nil {
				t.Fatal(err)
			}
			defer left.Close()
			var kinds []string
			for _, e := range eventsIn(t, left) {
				if e.Kind != records.EventProbed { // as often as the wait took
					kinds = append(kinds, string(e.Kind))
				}
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != want {
				t.Errorf("events: %s, want %s", got, want)
			}
		})
	}
}
