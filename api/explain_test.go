package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

func TestExplanation(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	says := func(t *testing.T, id records.ID, parts ...string) api.RecordReport {
		t.Helper()
		r := ada[api.RecordReport](t, d, http.MethodGet, "/v1/records/"+id.String(), "")
		for _, part := range parts {
			if !strings.Contains(r.Explanation, part) {
				t.Errorf("%s: %q is not in: %s", r.Record.State, part, r.Explanation)
			}
		}
		return r
	}

	t.Run("OfEachState", func(t *testing.T) {
		says(t, d.ids[records.Finalized], "replayed until it expires", "Nothing is to be done.")
		says(t, d.ids[records.Released], "The key is free")
		unknown := says(t, d.ids[records.Unknown], "nobody can tell", "operation_ref", "records reconcile", "records resolve", "records release")
		if expires := unknown.Record.ExpiresAt.Format(time.RFC3339); !strings.Contains(unknown.Explanation, "until it expires at "+expires) {
			t.Errorf("not %s: %s", expires, unknown.Explanation)
		}
		if unknown.Verdict != "" {
			t.Errorf("an owner was asked about what is over: %s", unknown.Verdict)
		}
	})

	t.Run("OfEachVerdict", func(t *testing.T) {
		for verdict, part := range map[string]string{
			"running":     "has signed that it is running it",
			"not_running": "has signed that it is not running it",
			"replaced":    "A newer process in its owner's slot answers",
			"down":        "Nothing listens where its owner should be",
			"silent":      "Its owner does not answer",
			"stranger":    "Another executor answers at its owner's URL",
			"unknown":     "cannot be understood from here",
		} {
			d.verdict.Store(&api.Sight{Verdict: verdict, Reason: "because"})
			r := says(t, d.ids[records.InProgress], part, "last heartbeat came", "its lease is 1m0s", "3 duplicates wait for it on this node")
			if r.Verdict != verdict || r.Why != "because" || *r.Waiters != 3 {
				t.Errorf("%+v", r)
			}
		}
	})

	t.Run("OfWhatWasNoted", func(t *testing.T) {
		id := d.ids[records.InProgress]
		h, err := d.store.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		o := []records.Occurrence{
			{Kind: records.EventProbed, Record: id, Epoch: h.Record.Epoch, Executor: d.executor, Reason: "silent: no answer", Ago: 90 * time.Second},
			{Kind: records.EventWaited, Record: id, Epoch: h.Record.Epoch, Reason: "first"},
		}
		if err := d.store.Note(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		r := says(t, id, "The last verdict about an owner, 1m3", "silent: no answer.", "The last that was noted, ", "waited: first.")
		if len(r.Events) != 2 || r.Events[0].Kind != "probed" {
			t.Errorf("%+v", r.Events)
		}
	})

	t.Run("OfTakeOversAndADeadOwner", func(t *testing.T) {
		id, heir := d.ids[records.InProgress], d.register(t, "heir")
		h, err := d.store.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		take := records.TakeOver{ID: id, From: h.Record.Fence(), By: heir, Attempt: records.NewToken(), SignedNotRunning: true}
		if _, err := d.store.TakeOver(t.Context(), take); err != nil {
			t.Fatal(err)
		}
		says(t, id, "taken over once of at most 5")
		if _, err := d.store.FenceByOperator(t.Context(), records.Condemnation{Executor: heir, Actor: "ada", Reason: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		says(t, id, "Its owner is fenced. The next duplicate takes it over")
		x := ada[api.ExecutorReport](t, d, http.MethodGet, "/v1/executors/"+heir.String(), "")
		if !strings.Contains(x.Explanation, "It was declared dead") || !strings.Contains(x.Explanation, "is taken over by the next duplicate") || len(x.Events) == 0 {
			t.Errorf("%+v", x)
		}
	})
}
