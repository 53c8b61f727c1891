package transfer_test

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/transfer"
)

// sealedStore is a store whose flows are sealed.
type sealedStore struct {
	records.Flows
	records.Store
}

func keys(t *testing.T, text string) sealed.Keys {
	t.Helper()
	k, err := sealed.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const (
	keyA = "a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	keyB = "b:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// TestSealed is about callbacks whose bodies the store cannot read.
func TestSealed(t *testing.T) {
	t.Parallel()
	t.Run("TokensAreNotInTheOutbox", func(t *testing.T) {
		t.Parallel()
		var raw flowStore
		sealer := sealed.New(sealed.Config{Keys: keys(t, keyA)})
		r, c := preparing(t, func(p *transfer.Config) {
			raw = p.Store.(flowStore)
			p.Store = sealedStore{sealer.OverFlows(raw), raw}
		})
		var stored []byte
		func() {
			c.mu.Lock() // it does not answer yet
			defer c.mu.Unlock()
			c.status = []int{http.StatusServiceUnavailable}
			r.ask(http.MethodPost, "/prepare", toReceive)
			r.await("it waits to be told", func() bool {
				h, err := raw.LoadFlow(t.Context(), "f")
				if err == nil && h.Callback != nil {
					stored = h.Callback.Body
				}
				return stored != nil
			})
		}()
		r.await("it is told", func() bool { return c.told("/f/dataflow/prepared", "dataAddress") == 2 })
		if token := c.token(t); bytes.Contains(stored, []byte(token)) || bytes.Contains(stored, []byte("dataAddress")) {
			t.Errorf("stored as %q", stored)
		}
		if status := r.send(c.token(t)); status != http.StatusOK {
			t.Errorf("a push with it: %d", status)
		}
	})
	t.Run("ThoseThatCannotBeOpenedArePutOffAndHoldUpNoOthers", func(t *testing.T) {
		t.Parallel()
		var raw flowStore
		var unsealable atomic.Int32
		sealer := sealed.New(sealed.Config{Keys: keys(t, keyA), Unsealable: func(sealed.Reason) { unsealable.Add(1) }})
		r, c := preparing(t, func(p *transfer.Config) {
			raw = p.Store.(flowStore)
			p.Store, p.CallbackPause, p.CallbackPauseMax = sealedStore{sealer.OverFlows(raw), raw}, time.Hour, time.Hour
			p.Async = false
		})
		other := sealed.New(sealed.Config{Keys: keys(t, keyB)}).OverFlows(raw)
		for _, id := range []string{"x", "y"} {
			if _, _, err := other.CreateFlow(t.Context(), records.NewFlow{
				ID: id, Record: records.Key{Key: id}.ID(), State: records.FlowPrepared, Attempt: records.NewToken(),
				Callback: &records.NewCallback{Event: "prepared", URL: c.url + "/" + id, Body: []byte("{}")},
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"one", "two", "three"} { // each has the outbox looked at
			r.start(id, "d")
			r.await(id+" is told", func() bool { return c.told("/"+id+"/dataflow/completed") == 1 })
		}
		r.await("both were tried", func() bool { return unsealable.Load() >= 2 })
		for _, id := range []string{"x", "y"} {
			h, err := raw.LoadFlow(t.Context(), id)
			if err != nil || h.Callback == nil || h.Callback.Tries != 1 {
				t.Errorf("callback of %s = %+v, %v; want it tried once", id, h.Callback, err)
			}
			r.await("why is written", func() bool {
				h, err := raw.LoadFlow(t.Context(), id)
				return err == nil && h.Callback != nil && h.Callback.Reason == "body: "+records.ErrSealed.Error()
			})
		}
		if n := unsealable.Load(); n != 2 {
			t.Errorf("%d complaints, want one for each", n)
		}
		if c.told("/x")+c.told("/y") > 0 {
			t.Errorf("something was sent of them: %q", c.said)
		}
	})
	t.Run("ThoseThatCouldNotBeOpenedGoOutOnceTheKeyIsThere", func(t *testing.T) {
		t.Parallel()
		var raw flowStore
		var unsealable atomic.Int32
		sealer := sealed.New(sealed.Config{Keys: keys(t, keyA), Unsealable: func(sealed.Reason) { unsealable.Add(1) }})
		r, c := preparing(t, func(p *transfer.Config) {
			raw = p.Store.(flowStore)
			p.Store = sealedStore{sealer.OverFlows(raw), raw}
		})
		other := sealed.New(sealed.Config{Keys: keys(t, keyB)}).OverFlows(raw)
		if _, _, err := other.CreateFlow(t.Context(), records.NewFlow{
			ID: "x", Record: records.Key{Key: "x"}.ID(), State: records.FlowPrepared, Attempt: records.NewToken(),
			Callback: &records.NewCallback{Event: "prepared", URL: c.url + "/x", Body: []byte(`{"said":"x"}`)},
		}); err != nil {
			t.Fatal(err)
		}
		r.await("it was tried", func() bool { return unsealable.Load() > 0 })
		sealer.Exchange(keys(t, keyA+"\n"+keyB))
		r.await("it is told", func() bool { return c.told("/x", `{"said":"x"}`) == 1 })
	})
}
