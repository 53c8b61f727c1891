package sqlite_test

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// open opens a store and closes it with the test.
func open(t testing.TB, c sqlite.Config) *sqlite.Store {
	t.Helper()
	if c.Path == "" {
		c.Path = newPath(t)
	}
	if c.Cluster == "" {
		c.Cluster = "test"
	}
	if c.Patience == 0 {
		c.Patience = time.Minute // the machine may be busy with other things
	}
	s, err := sqlite.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "probate.db") }

// register adds an executor, with what the test left open filled in.
func register(t testing.TB, s records.Store, r records.Registration) records.Executor {
	t.Helper()
	e, err := s.Register(t.Context(), registration(r))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func registration(r records.Registration) records.Registration {
	if r.ID == (records.ExecutorID{}) {
		rand.Read(r.ID[:])
	}
	if r.Slot == "" {
		r.Slot = r.ID.String()
	}
	if r.Policy == "" {
		r.Policy = records.PolicyProbe
	}
	if r.LeaseTTL == 0 {
		r.LeaseTTL = time.Hour
	}
	r.URL = "http://127.0.0.1:8081"
	r.PublicKey = make([]byte, 32)
	return r
}

// reserve claims a key that nobody used before.
func reserve(t testing.TB, s records.Store, by records.ExecutorID) records.Record {
	t.Helper()
	got, err := s.Reserve(t.Context(), reservation(by))
	if err != nil || !got.Owned {
		t.Fatalf("reserve: owned %t, %v", got.Owned, err)
	}
	return got.Record
}

func reservation(by records.ExecutorID) records.Reservation {
	key := records.Key{Realm: "realm", Principal: "principal", Key: rand.Text()}
	return records.Reservation{
		ID: key.ID(), Realm: key.Realm, Key: key.Key,
		Operation: "POST /orders", Resource: "/orders",
		Fingerprint: records.FingerprintOf("POST", "/orders", "{}"),
		By:          by, Attempt: records.NewToken(),
	}
}

// occupy keeps the store in a write transaction until the channel is closed.
func occupy(t *testing.T, s *sqlite.Store) (leave chan<- struct{}) {
	t.Helper()
	entered, left := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- sqlite.Occupy(context.WithoutCancel(t.Context()), s, entered, left) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("occupy: %v", err)
		}
	})
	<-entered
	return left
}

// await polls until done reports true.
func await(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("did not happen within a minute")
		}
	}
}
