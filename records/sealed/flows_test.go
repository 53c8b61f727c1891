package sealed_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
)

// flowStore is a store with both over it.
type flowStore struct {
	*sealed.Store
	*sealed.Flows
}

func TestFlows(t *testing.T) {
	t.Parallel()
	keys, err := sealed.ParseKeys("k:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		t.Fatal(err)
	}
	s := sealed.New(sealed.Config{Keys: keys})
	recordstest.RunFlows(t, func(t testing.TB) func(t testing.TB) recordstest.FlowStore {
		path := filepath.Join(t.TempDir(), "probate.db")
		return func(t testing.TB) recordstest.FlowStore {
			store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test", Grace: recordstest.Grace})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return flowStore{s.Over(store), s.OverFlows(store)}
		}
	})
	t.Run("StrayFlows/GoesPastThoseThatCannotBeOpened", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "probate.db"), Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		others, err := sealed.ParseKeys("l:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
		if err != nil {
			t.Fatal(err)
		}
		other := sealed.New(sealed.Config{Keys: others})
		for id, by := range map[string]*sealed.Sealer{"a": s, "b": s, "c": s, "d": other} {
			if _, _, err := by.OverFlows(store).CreateFlow(t.Context(), records.NewFlow{
				ID: id, Record: records.Key{Key: id}.ID(), Moves: true, State: records.FlowStarted, Attempt: records.NewToken(), Message: []byte("{}"),
			}); err != nil {
				t.Fatal(err)
			}
		}
		strays, err := other.OverFlows(store).StrayFlows(t.Context(), 0, "", 2)
		if err != nil || len(strays) != 1 || strays[0].ID != "d" {
			t.Errorf("%d strays, %v; want d", len(strays), err)
		}
	})
}

// told is a sealer over a store, and what it complained of.
type told struct {
	*sealed.Flows
	reasons []sealed.Reason
	log     bytes.Buffer
}

func telling(t *testing.T, keys string, store records.Flows) *told {
	t.Helper()
	k, err := sealed.ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	w := &told{}
	w.Flows = sealed.New(sealed.Config{
		Keys: k, Logger: slog.New(slog.NewTextHandler(&w.log, nil)), Unsealable: func(r sealed.Reason) { w.reasons = append(w.reasons, r) },
	}).OverFlows(store)
	return w
}

// adds makes a flow of which something is to be told.
func (w *told) adds(t *testing.T, id string, c records.NewCallback) {
	t.Helper()
	if _, _, err := w.CreateFlow(t.Context(), records.NewFlow{
		ID: id, Record: records.Key{Key: id}.ID(), State: records.FlowPrepared, Attempt: records.NewToken(), Callback: &c,
	}); err != nil {
		t.Fatal(err)
	}
}

func (w *told) due(t *testing.T) map[string]records.Callback {
	t.Helper()
	all, err := w.DueCallbacks(t.Context(), time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]records.Callback{}
	for _, c := range all {
		found[c.Flow] = c
	}
	return found
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	const (
		a     = "a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		b     = "b:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		token = "what lets a provider in"
	)
	fresh := func(t *testing.T) *sqlite.Store {
		t.Helper()
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "probate.db"), Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	says := records.NewCallback{Event: "prepared", URL: "http://control.example/prepared", Body: []byte(token)}
	stored := func(t *testing.T, s *sqlite.Store, id string) records.NewCallback {
		t.Helper()
		h, err := s.LoadFlow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return h.Callback.NewCallback
	}
	t.Run("AreNotReadInTheStore", func(t *testing.T) {
		t.Parallel()
		store := fresh(t)
		w := telling(t, a, store)
		w.adds(t, "f", says)
		if _, err := w.MoveFlow(t.Context(), records.FlowMove{
			ID: "f", Attempt: records.NewToken(), Version: 1, To: records.FlowStarted, Callback: &says,
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what was created with the flow, and what its move has caused
			kept := stored(t, store, "f")
			if bytes.Contains(kept.Body, []byte(token)) || kept.URL != says.URL {
				t.Errorf("stored as %q to %s", kept.Body, kept.URL)
			}
			c := w.due(t)["f"]
			if string(c.Body) != token || c.Sealed {
				t.Errorf("callback = %+v", c)
			}
			if err := w.CallbackDone(t.Context(), c.Flow, c.Version); err != nil {
				t.Fatal(err)
			}
		}
		if string(says.Body) != token {
			t.Error("the caller's own was changed")
		}
	})
	t.Run("ThatCannotBeOpenedAreToldOfAndHideNoOthers", func(t *testing.T) {
		t.Parallel()
		store := fresh(t)
		telling(t, a, store).adds(t, "mine", says)
		w := telling(t, b, store)
		w.adds(t, "yours", says)
		h, err := w.LoadFlow(t.Context(), "mine")
		if err != nil || h.Callback == nil || !h.Callback.Sealed || h.Callback.Body != nil {
			t.Errorf("load: %+v, %v; want the flow, and its callback without a body", h.Callback, err)
		}
		if len(w.reasons) > 0 {
			t.Errorf("a look at the flow complains: %v", w.reasons)
		}
		due := w.due(t)
		if c := due["mine"]; c.Event != says.Event || !c.Sealed || c.Body != nil || c.Tries != 1 {
			t.Errorf("the one that cannot be opened: %+v", c)
		}
		if c := due["yours"]; string(c.Body) != token || c.Sealed {
			t.Errorf("the other: %+v", c)
		}
		if len(w.reasons) != 1 || w.reasons[0] != sealed.UnknownKey || !strings.Contains(w.log.String(), "value=callback reason=unknown_key") {
			t.Errorf("complaints: %v\n%s", w.reasons, w.log.String())
		}
		if again := w.due(t); len(again) > 0 {
			t.Errorf("due again at once: %+v", again)
		}
	})
	for name, spoil := range map[string]func(id string, c *records.NewCallback) string{
		"SentElsewhere":  func(id string, c *records.NewCallback) string { c.URL = "http://elsewhere.example"; return id },
		"OfAnotherEvent": func(id string, c *records.NewCallback) string { c.Event = "started"; return id },
		"OfAnotherFlow":  func(id string, _ *records.NewCallback) string { return id + "'s" },
		"CutShort":       func(id string, c *records.NewCallback) string { c.Body = c.Body[:len(c.Body)-1]; return id },
		"OfAnotherBit":   func(id string, c *records.NewCallback) string { c.Body[len(c.Body)-1] ^= 1; return id },
	} {
		t.Run("AreNotOpenedOnceTheyAre/"+name, func(t *testing.T) {
			t.Parallel()
			from, to := fresh(t), fresh(t)
			telling(t, a, from).adds(t, "f", says)
			c := stored(t, from, "f")
			id := spoil("f", &c)
			if _, _, err := to.CreateFlow(t.Context(), records.NewFlow{
				ID: id, Record: records.Key{Key: id}.ID(), State: records.FlowPrepared, Attempt: records.NewToken(), Callback: &c,
			}); err != nil {
				t.Fatal(err)
			}
			w := telling(t, a, to)
			if got := w.due(t)[id]; !got.Sealed || got.Body != nil || len(w.reasons) != 1 || w.reasons[0] != sealed.Corrupt {
				t.Errorf("callback = %+v, complaints %v", got, w.reasons)
			}
		})
	}
}
