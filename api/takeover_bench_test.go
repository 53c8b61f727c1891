package api_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// haunted is a coordinator whose records are a dead executor's: the first time
// it is asked for a key it has that executor reserve it.
type haunted struct {
	api.Coordinator
	store records.Store
	dead  records.ExecutorID
	lives bool
}

// Do implements [api.Coordinator].
func (h *haunted) Do(ctx context.Context, req takeover.Request, work takeover.Work) (takeover.Answer, error) {
	if !h.lives {
		return h.Coordinator.Do(ctx, req, work)
	}
	_, err := h.store.Reserve(ctx, records.Reservation{
		ID: req.Key.ID(), Realm: req.Key.Realm, Key: req.Key.Key, Operation: req.Operation, Resource: req.Resource,
		Fingerprint: req.Fingerprint, By: h.dead, Attempt: records.NewToken(),
	})
	if err != nil {
		return takeover.Answer{}, err
	}
	return takeover.Answer{}, takeover.ErrNotServing
}

// BenchmarkTakeOver: what a question adds to a take-over, over the embedded
// store: reexecute, against a service that takes 20 ms to say applied, and
// that call alone.
func BenchmarkTakeOver(b *testing.B) {
	const turn, takes = 40, 20 * time.Millisecond
	service := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(takes)
		says(`{"finding": "applied", "response": {"status": 201, "body": "paid"}}`)(w, r)
	}))
	b.Cleanup(service.Close)
	store := openStore(filepath.Join(b.TempDir(), "probate.db"))
	n := startNode("heir", store, func(c *takeover.Config) { c.SweepEvery = time.Hour })
	b.Cleanup(n.close)
	h := &haunted{Coordinator: n, store: store}
	urls := map[string]string{}
	for _, how := range []string{"reexecute", "url"} {
		r := payments(b)
		r.Operation += how
		r.Reconcile = api.Reconcile{Reexecute: true}
		if how == "url" {
			r.Reconcile = api.Reconcile{URL: service.URL}
		}
		urls[how] = middleware.open(b, r, paid, h)[0]
	}
	took := map[string][]time.Duration{}
	for round := 0; b.Loop(); round++ {
		h.dead, h.lives = records.ExecutorID{}, true
		rand.Read(h.dead[:])
		_, err := store.Register(b.Context(), records.Registration{
			ID: h.dead, Slot: fmt.Sprint(round), URL: "http://192.0.2.1:1", PublicKey: make([]byte, 32),
			Policy: records.PolicyProbe, LeaseTTL: time.Hour,
		})
		if err != nil {
			b.Fatal(err)
		}
		key := func(how string, i int) string { return fmt.Sprintf("%s-%d-%d", how, round, i) }
		for how, url := range urls {
			for i := range turn {
				send(b, url, request{key: key(how, i)}).wantProblem(b, 503, "store_unavailable")
			}
		}
		if err := store.Drain(b.Context(), h.dead); err != nil {
			b.Fatal(err)
		}
		if err := store.Retire(b.Context(), h.dead); err != nil {
			b.Fatal(err)
		}
		h.lives = false
		for i := range turn {
			for _, how := range []string{"reexecute", "url"} {
				want := map[string]string{"reexecute": "taken-over", "url": "reconciled"}[how]
				begun := time.Now()
				got := send(b, urls[how], request{key: key(how, i)})
				took[how] = append(took[how], time.Since(begun))
				got.want(b, 201, "Idempotency-Status: "+want)
			}
			begun := time.Now()
			send(b, service.URL, request{key: "alone", path: "/"}).want(b, 200)
			took["call"] = append(took["call"], time.Since(begun))
		}
	}
	for how, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, how+"-ms")
	}
}
