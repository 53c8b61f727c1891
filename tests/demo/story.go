package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/probate-dev/probate/records"
)

// story is one request, two nodes and a crash.
type story struct {
	store records.Store
	out   io.Writer

	a, b     records.Executor
	key      records.Key
	lost     records.Fence // A's right to write the record
	takenOn  records.Fence // B's, after the take-over
	response records.Response
}

// play tells the story line by line and stops at the first answer that is not
// the right one.
func play(ctx context.Context, store records.Store, out io.Writer) error {
	s := &story{
		store: store, out: out,
		key: records.Key{Realm: "shop", Principal: "alice", Key: "order-1042"},
		response: records.Response{
			Status:  201,
			Headers: []records.Header{{Name: "Location", Value: "/orders/1042"}},
			Body:    []byte(`{"order":1042}`),
		},
	}
	for _, step := range []func(context.Context) error{
		s.register, s.reserve, s.duplicate, s.fence, s.beatLate,
		s.takeOver, s.finalizeLate, s.finalize, s.replay,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) register(ctx context.Context) (err error) {
	if s.a, err = s.boot(ctx, "a", "http://127.0.0.1:8081"); err != nil {
		return err
	}
	if s.b, err = s.boot(ctx, "b", "http://127.0.0.1:8082"); err != nil {
		return err
	}
	return s.say("nodes A and B", "registered, at %s and %s", s.a.URL, s.b.URL)
}

func (s *story) reserve(ctx context.Context) error {
	got, err := s.reserveAs(ctx, s.a)
	if err != nil || !got.Owned {
		return wrong("reserve as A", err)
	}
	s.lost = got.Record.Fence()
	return s.say("A gets the request", "owned: A executes it")
}

func (s *story) duplicate(ctx context.Context) error {
	got, err := s.reserveAs(ctx, s.b)
	if err != nil || got.Owned || got.Record.Fence() != s.lost {
		return wrong("reserve as B", err)
	}
	return s.say("B gets it again", "a duplicate: %s at A; ask %s", got.Record.State, got.Record.ExecutorURL)
}

func (s *story) fence(ctx context.Context) error {
	dead, err := s.store.Fence(ctx, records.Suspicion{
		Suspect: s.a.ID, Beat: s.a.Beat, Probed: true,
		Observer: s.b.ID, ObserverBeat: s.b.Beat,
		Reason: "demo: A refuses connections",
	})
	if err != nil || dead.State != records.Fenced {
		return wrong("fence A", err)
	}
	return s.say("A falls silent, B fences it", "A is %s", dead.State)
}

func (s *story) beatLate(ctx context.Context) error {
	_, err := s.store.Heartbeat(ctx, s.a.ID)
	if !errors.Is(err, records.ErrNotActive) {
		return wrong("beat as A", err)
	}
	return s.say("A was only paused, and beats", "refused: %v", records.ErrNotActive)
}

func (s *story) takeOver(ctx context.Context) error {
	r, err := s.store.TakeOver(ctx, records.TakeOver{
		ID: s.key.ID(), From: s.lost, By: s.b.ID, Attempt: records.NewToken(),
	})
	if err != nil || r.Epoch != s.lost.Epoch+1 {
		return wrong("take over", err)
	}
	s.takenOn = r.Fence()
	return s.say("B takes the record over", "owned: B executes it, at the next epoch")
}

func (s *story) finalizeLate(ctx context.Context) error {
	late := records.Outcome{Response: records.Response{Status: 500}, Retention: time.Hour}
	err := s.store.Finalize(ctx, s.key.ID(), s.lost, late)
	if !errors.Is(err, records.ErrFenced) {
		return wrong("finalize as A", err)
	}
	return s.say("A wants to finalize after all", "refused: %v", records.ErrFenced)
}

func (s *story) finalize(ctx context.Context) error {
	done := records.Outcome{Response: s.response, Retention: time.Hour}
	if err := s.store.Finalize(ctx, s.key.ID(), s.takenOn, done); err != nil {
		return wrong("finalize as B", err)
	}
	return s.say("B finalizes", "stored: %d %s", s.response.Status, s.response.Body)
}

func (s *story) replay(ctx context.Context) error {
	got, err := s.reserveAs(ctx, s.b)
	if err != nil || got.Owned || got.Record.Response == nil ||
		string(got.Record.Response.Body) != string(s.response.Body) {
		return wrong("replay", err)
	}
	return s.say("the client tries once more", "replayed: %d %s", got.Record.Response.Status, got.Record.Response.Body)
}

// boot registers a new boot in a slot.
func (s *story) boot(ctx context.Context, slot, url string) (records.Executor, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return records.Executor{}, fmt.Errorf("make key: %w", err)
	}
	e, err := s.store.Register(ctx, records.Registration{
		ID: records.ExecutorID(records.NewToken()), Slot: slot, URL: url,
		PublicKey: public, Policy: records.PolicyProbe, LeaseTTL: 15 * time.Second,
	})
	if err != nil {
		return records.Executor{}, wrong("register "+slot, err)
	}
	return e, nil
}

func (s *story) reserveAs(ctx context.Context, e records.Executor) (records.Reserved, error) {
	return s.store.Reserve(ctx, records.Reservation{
		ID: s.key.ID(), Realm: s.key.Realm, Key: s.key.Key, Operation: "create-order",
		Fingerprint: records.FingerprintOf("POST", "/orders", `{"sku":7}`),
		By:          e.ID, Attempt: records.NewToken(),
	})
}

// say prints what happened and what the store answered.
func (s *story) say(event, format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, "%-30s -> %s\n", event, fmt.Sprintf(format, args...))
	return err
}

// wrong is the error of a step whose answer, or error, is not the right one.
func wrong(step string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: the store gave another answer than its contract says", step)
	}
	return fmt.Errorf("%s: %w", step, err)
}
