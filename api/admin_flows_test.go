package api_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
)

// TestTerminateFlow_Unreadable is about flows whose key this node has not, or
// nobody any more: nobody can move their bytes, and an operator must be able to
// end them.
func TestTerminateFlow_Unreadable(t *testing.T) {
	t.Parallel()
	const (
		id, why = "f", "INC-42"
		theirs  = "a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	)
	keys, err := sealed.ParseKeys(theirs)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		held bool // by an executor that lives
		want records.FlowState
	}{
		"IsEndedIfNobodyHasIt":       {false, records.FlowTerminated},
		"IsLeftToWhoHasItInProgress": {true, records.FlowStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := openStore(filepath.Join(t.TempDir(), "db"))
			t.Cleanup(func() { _ = store.Close() })
			raw := store.(records.Flows)
			record := records.Key{Realm: "dataflow", Key: id}.ID()
			_, _, err := sealed.New(sealed.Config{Keys: keys}).OverFlows(raw).CreateFlow(t.Context(), records.NewFlow{
				ID: id, Record: record, Moves: true, State: records.FlowStarted, Attempt: records.NewToken(), Message: []byte("{}"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.held {
				e, err := store.Register(t.Context(), records.Registration{
					ID: records.ExecutorID{1}, Slot: "x", URL: "http://192.0.2.1:1", PublicKey: make([]byte, 32), Policy: records.PolicyProbe, LeaseTTL: time.Minute,
				})
				if err == nil {
					_, err = store.Reserve(t.Context(), records.Reservation{
						ID: record, Realm: "dataflow", Key: id, Operation: "dataflow", By: e.ID, Attempt: records.NewToken(),
					})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ours := sealed.New(sealed.Config{}).OverFlows(raw)
			flows := api.AdminFlows{
				Store: raw,
				Terminate: func(ctx context.Context, flow, _ string) error {
					_, err := ours.LoadFlow(ctx, flow)
					return err
				},
				Ended: func(records.Flow, string) *records.NewCallback {
					return &records.NewCallback{Event: "errored", URL: "http://control.example", Body: []byte("{}")}
				},
			}
			limit, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // of waiting for who has it
			defer cancel()
			done, err := api.TerminateFlow(limit, flows, store, id, "ada", why)
			if err != nil || !done.Changed {
				t.Fatalf("terminate: %+v, %v", done, err)
			}
			h, err := raw.LoadFlow(t.Context(), id)
			if err != nil || h.Flow.State != c.want || h.Flow.Reason != why {
				t.Errorf("flow = %+v, %v; want it %s", h.Flow, err, c.want)
			}
			if c.held != (h.Flow.Wanted == records.FlowTerminated) || c.held == (h.Callback != nil) {
				t.Errorf("wanted %q, callback %+v", h.Flow.Wanted, h.Callback)
			}
		})
	}
}
