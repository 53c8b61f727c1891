package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestAdminLists(t *testing.T) {
	t.Parallel()
	d := newDesk(t)

	t.Run("ByEveryFilter", func(t *testing.T) {
		t.Parallel()
		for query, want := range map[string]int{
			"": 4, "state=unknown": 1, "realm=shop": 4, "realm=": 0, "realm=other": 0, "operation=order&state=finalized": 1,
			"key=key+of+unknown": 1, "key=none": 0, "executor=" + d.executor.String(): 4, "older_than=1h": 0, "older_than=1ns": 4,
			"executor=00000000-0000-4000-8000-000000000000": 0,
		} {
			page := ada[api.RecordPage](t, d, http.MethodGet, "/v1/records?"+query, "")
			if len(page.Records) != want || page.More || page.Next != "" {
				t.Errorf("%s: %d records, more %v, want %d", query, len(page.Records), page.More, want)
			}
		}
	})

	t.Run("PagesThatDoNotDrift", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		for i := range 20 {
			d.record(t, fmt.Sprint("more ", i), records.Unknown)
		}
		seen := map[string]int{}
		after := ""
		for n := 0; ; n++ {
			page := ada[api.RecordPage](t, d, http.MethodGet, "/v1/records?limit=3"+after, "")
			for _, r := range page.Records {
				seen[r.Record]++
			}
			// What comes, and what changes, between two pages moves nothing from one to another.
			d.record(t, fmt.Sprint("meanwhile ", n), records.Released)
			if !page.More {
				break
			}
			after = "&after=" + page.Next
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was listed %d times", id, n)
			}
		}
		if len(seen) < 24 {
			t.Errorf("%d of 24 records were listed", len(seen))
		}
	})

	t.Run("Executors", func(t *testing.T) {
		t.Parallel()
		list := ada[api.ExecutorList](t, d, http.MethodGet, "/v1/executors", "")
		if len(list.Executors) != 1 || list.Executors[0].Executor != d.executor.String() {
			t.Errorf("%+v", list)
		}
		shown := ada[api.ExecutorReport](t, d, http.MethodGet, "/v1/executors/"+d.executor.String(), "")
		if len(shown.Records) != 1 || shown.Records[0].State != "in_progress" || !strings.Contains(shown.Explanation, "It serves") {
			t.Errorf("%+v", shown)
		}
	})
}

func TestAdminReleases(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.ids[records.Unknown]
	before := d.stands(t, id, records.Unknown)
	now := ada[api.RecordReport](t, d, http.MethodPost, "/v1/records/"+id.String()+"/release", d.orderAt(t, id, ""))
	after := d.stands(t, id, records.Released)
	if now.Record.State != "released" || now.Record.Epoch != after.Epoch || after.Epoch <= before.Epoch {
		t.Errorf("%+v after epoch %d", now.Record, before.Epoch)
	}

	t.Run("NotesWhoDidWhatAndWhy", func(t *testing.T) {
		list := ada[api.EventList](t, d, http.MethodGet, "/v1/events?kind=released&record="+id.String(), "")
		if len(list.Events) != 1 {
			t.Fatalf("%+v", list)
		}
		e := list.Events[0]
		if e.Actor != "ada" || !strings.Contains(e.Reason, "INC-42") || e.Before != "unknown" || e.After != "released" || e.Record != id.String() {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(now.Explanation, "released by ada: INC-42") {
			t.Errorf("explanation: %s", now.Explanation)
		}
	})

	t.Run("LogsItWithoutTheKey", func(t *testing.T) {
		log := d.logged()
		for _, part := range []string{"operator=ada", "action=release", "record=" + id.String(), "before=unknown", "after=released", "reason=INC-42"} {
			if !strings.Contains(log, part) {
				t.Errorf("no %s in\n%s", part, log)
			}
		}
		if strings.Contains(log, "key of") {
			t.Errorf("a key is in the log:\n%s", log)
		}
	})

	t.Run("OnlyWhatIsInAStateForIt", func(t *testing.T) {
		for _, state := range []records.State{records.Finalized, records.InProgress} { // its executor lives
			id := d.ids[state]
			d.refused(t, http.MethodPost, "/v1/records/"+id.String()+"/release", d.orderAt(t, id, ""), 409, "state_conflict")
			d.stands(t, id, state)
		}
	})

	t.Run("WhatADeadExecutorHas", func(t *testing.T) {
		executor := "/v1/executors/" + d.executor.String()
		d.refused(t, http.MethodPost, executor+"/fence", `{"reason": "dead"}`, 409, "lease_held")
		d.refused(t, http.MethodPost, executor+"/fence", `{"force": true}`, 400, "request_invalid")
		fenced := ada[api.ExecutorReport](t, d, http.MethodPost, executor+"/fence", `{"reason": "its host is off", "force": true}`)
		if x := fenced.Executor; x.State != "fenced" || x.FencedReason != "operator ada, by force: its host is off" {
			t.Errorf("%+v", x)
		}
		id := d.ids[records.InProgress]
		ada[api.RecordReport](t, d, http.MethodPost, "/v1/records/"+id.String()+"/release", d.orderAt(t, id, ""))
		d.stands(t, id, records.Released)
	})
}

func TestAdminResolves(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	path := func(s records.State) string { return "/v1/records/" + d.ids[s].String() + "/resolve" }
	const response = `, "response": {"status": 201, "headers": {"location": ["/orders/7"], "Set-Cookie": ["secret"]}, "body_base64": "/wA="}`

	t.Run("OnlyStrictOrders", func(t *testing.T) {
		id := d.ids[records.Unknown]
		good := d.orderAt(t, id, response)
		for _, body := range []string{
			"", "{", "[]", "{}", good + "{}", d.orderAt(t, id, ""), d.orderAt(t, id, response+`, "stauts": 201`),
			d.orderAt(t, id, `, "response": {"status": 99}`), d.orderAt(t, id, `, "response": {"status": 429}`),
			d.orderAt(t, id, `, "response": {"status": 201, "body": "a", "body_base64": "YQ=="}`),
			d.orderAt(t, id, `, "response": {"status": 201, "headers": {"a b": ["c"]}}`),
			d.orderAt(t, id, `, "response": {"status": 204, "body": "a"}`),
			d.orderAt(t, id, response+`, "retention": "-1h"`), d.orderAt(t, id, response+`, "retention": "soon"`),
			strings.Replace(good, "INC-42", " ", 1), strings.Replace(good, "INC-42", strings.Repeat("x", 1025), 1),
			strings.Replace(good, `"epoch"`, `"epoche"`, 1),
			d.orderAt(t, id, fmt.Sprintf(`, "response": {"status": 201, "body": %q}`, strings.Repeat("x", 1<<20+1))),
		} {
			d.refused(t, http.MethodPost, path(records.Unknown), body, 400, "request_invalid")
		}
		d.refused(t, http.MethodPost, path(records.Unknown), good[:len(good)-1]+strings.Repeat(" ", 4<<20)+"}", 413, "request_too_large")
		d.stands(t, id, records.Unknown)
	})

	t.Run("OnlyAtTheEpochThatWasSeen", func(t *testing.T) {
		r := d.stands(t, d.ids[records.Unknown], records.Unknown)
		body := fmt.Sprintf(`{"epoch": %d, "reason": "r"%s}`, r.Epoch+1, response)
		d.refused(t, http.MethodPost, path(records.Unknown), body, 409, "state_conflict")
		d.stands(t, r.ID, records.Unknown)
	})

	t.Run("NeverWhatIsFinalized", func(t *testing.T) {
		for _, state := range []records.State{records.Finalized, records.Released, records.InProgress} {
			d.refused(t, http.MethodPost, path(state), d.orderAt(t, d.ids[state], response), 409, "state_conflict")
		}
		if r := d.stands(t, d.ids[records.Finalized], records.Finalized); string(r.Response.Body) != "the stored answer" {
			t.Errorf("%+v", r.Response)
		}
	})

	t.Run("WhatIsUnknown", func(t *testing.T) {
		id := d.ids[records.Unknown]
		now := ada[api.RecordReport](t, d, http.MethodPost, path(records.Unknown), d.orderAt(t, id, response+`, "retention": "48h"`))
		r := d.stands(t, id, records.Finalized)
		if now.Record.Status != 201 || string(r.Response.Body) != "\xff\x00" || len(r.Response.Headers) != 1 || r.Response.Headers[0] != (records.Header{Name: "Location", Value: "/orders/7"}) {
			t.Errorf("%+v", r.Response)
		}
		if kept := r.ExpiresAt.Sub(r.FinalizedAt).Hours(); kept < 47.9 || kept > 48.1 {
			t.Errorf("kept for %v hours", kept)
		}
		list := ada[api.EventList](t, d, http.MethodGet, "/v1/events?kind=resolved", "")
		if len(list.Events) != 1 || list.Events[0].Actor != "ada" || list.Events[0].After != "finalized" {
			t.Errorf("%+v", list.Events)
		}
	})
}

func TestAdminReconciles(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.ids[records.Unknown]
	path := "/v1/records/" + id.String() + "/reconcile"

	t.Run("OnANodeThatServes", func(t *testing.T) {
		d.refused(t, http.MethodPost, path, d.orderAt(t, id, ""), 503, "not_serving")
	})

	t.Run("AndSaysWhyItIsNotToBeHad", func(t *testing.T) {
		for state, part := range map[records.State]string{
			records.Unknown: "its lease is still running", records.InProgress: "not yet known to be dead", records.Finalized: "has come to an end", records.Released: "has come to an end",
		} {
			id := d.ids[state]
			d.aloof.Store(true) // as a node is whose probe brought no answer, or who came too late
			came := ada[api.Reconciled](t, d, http.MethodPost, "/v1/records/"+id.String()+"/reconcile", d.orderAt(t, id, ""))
			d.aloof.Store(false)
			if came.Claimed || came.Asked || came.Over || came.Finding != "" || !strings.Contains(came.Why, part) {
				t.Errorf("%s: %+v", state, came)
			}
		}
		if strings.Contains(d.logged(), "action=reconcile") {
			t.Error("it is logged as a change")
		}
	})

	if _, err := d.store.FenceByOperator(t.Context(), records.Condemnation{Executor: d.executor, Actor: "ada", Reason: "test", Force: true}); err != nil { // or the node would want it to dial back
		t.Fatal(err)
	}
	found := takeover.FoundApplied(records.Response{Status: 201, Body: []byte("found")})
	m := startNode("reconciling", openStore(d.path), func(c *takeover.Config) {
		c.Recover = func(r records.Record) (takeover.Terms, takeover.Work, bool) {
			return takeover.Terms{Reconciler: takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
				return found, nil
			})}, nil, r.Resource == "7"
		}
	})
	defer m.close()
	d.node.Store(m.Node)

	t.Run("NeverWhatIsFinalized", func(t *testing.T) {
		id := d.ids[records.Finalized]
		d.refused(t, http.MethodPost, "/v1/records/"+id.String()+"/reconcile", d.orderAt(t, id, ""), 409, "state_conflict")
	})

	t.Run("AndTellsWhatWasFound", func(t *testing.T) {
		came := ada[api.Reconciled](t, d, http.MethodPost, path, d.orderAt(t, id, ""))
		if !came.Claimed || !came.Asked || !came.Over || came.Finding != "applied" || came.Now.Record.State != "finalized" {
			t.Errorf("%+v", came)
		}
		if r := d.stands(t, id, records.Finalized); string(r.Response.Body) != "found" {
			t.Errorf("%+v", r.Response)
		}
		list := ada[api.EventList](t, d, http.MethodGet, "/v1/events?kind=reconciled&record="+id.String(), "")
		if n := len(list.Events); n == 0 || list.Events[n-1].Actor != "ada" || list.Events[n-1].Reason != "found applied: INC-42" {
			t.Errorf("%+v", list.Events)
		}
		if log := d.logged(); !strings.Contains(log, "action=reconcile") || !strings.Contains(log, "finding=applied") {
			t.Error(log)
		}
	})
}

func TestAdminErases(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	erase := func(principal string) api.Erased {
		return ada[api.Erased](t, d, http.MethodPost, "/v1/principals/erase",
			fmt.Sprintf(`{"realm": "shop", "principal": %q, "reason": "DSR-7"}`, principal))
	}
	if done := erase("trusted_header:bob"); done.Erased != 0 || done.InProgress != 0 || done.More {
		t.Errorf("bob: %+v", done)
	}
	if r := d.stands(t, d.ids[records.Finalized], records.Finalized); r.Key == "" || r.Response.Body == nil {
		t.Errorf("%+v", r)
	}
	if done := erase("trusted_header:alice"); done.Erased != 3 || done.InProgress != 1 || done.More {
		t.Errorf("alice: %+v", done)
	}
	if r := d.stands(t, d.ids[records.Finalized], records.Finalized); r.Key != "" || r.Resource != "" || r.Response.Body != nil || r.Response.Status != 201 {
		t.Errorf("%+v", r)
	}
	if log := d.logged(); strings.Contains(log, "alice") || !strings.Contains(log, "action=erase") {
		t.Error(log)
	}
	for _, body := range []string{`{"realm": "shop", "reason": "r"}`, `{"realm": "shop", "principal": "alice", "reason": "r"}`, `{"principal": "none"}`, `{"principal": "none", "reason": "r", "after": "x"}`} {
		d.refused(t, http.MethodPost, "/v1/principals/erase", body, 400, "request_invalid")
	}
}

func TestAdminPurges(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if done := ada[api.Purged](t, d, http.MethodPost, "/v1/purge", `{"reason": "r"}`); done != (api.Purged{}) {
		t.Errorf("nothing has expired: %+v", done)
	}
	d.refused(t, http.MethodPost, "/v1/purge", `{}`, 400, "request_invalid")
	d.refused(t, http.MethodPost, "/v1/purge", `{"reason": " "}`, 400, "request_invalid")
	if list := ada[api.EventList](t, d, http.MethodGet, "/v1/events?kind=purged", ""); len(list.Events) != 0 {
		t.Errorf("nothing was deleted: %+v", list.Events)
	}

	t.Run("AndSaysWhoDidItAndWhy", func(t *testing.T) {
		t.Parallel()
		old := &aged{left: 2500}
		d := newDesk(t, func(c *api.AdminConfig) { old.AdminStore, c.Store = c.Store, old })
		if done := ada[api.Purged](t, d, http.MethodPost, "/v1/purge", `{"reason": "INC-5"}`); done != (api.Purged{Records: 2500}) {
			t.Errorf("%+v", done)
		}
		list := ada[api.EventList](t, d, http.MethodGet, "/v1/events?kind=purged", "")
		if len(list.Events) != 1 || list.Events[0].Actor != "ada" || list.Events[0].Reason != "2500 records and 0 executors: INC-5" {
			t.Errorf("%+v", list.Events)
		}
		if log := d.logged(); !strings.Contains(log, "action=purge") || !strings.Contains(log, "records=2500") {
			t.Error(log)
		}
	})
}

// aged is a store in which some records have expired.
type aged struct {
	api.AdminStore
	left int
}

func (a *aged) Purge(_ context.Context, limit int) (int, error) {
	n := min(limit, a.left)
	a.left -= n
	return n, nil
}
