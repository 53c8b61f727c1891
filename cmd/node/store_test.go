package main

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// registration is a boot that runs nowhere.
func registration() records.Registration {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return records.Registration{
		ID: records.ExecutorID(records.NewToken()), Slot: "elsewhere", URL: "http://192.0.2.1:1", PublicKey: public,
		Policy: records.PolicyProbe, LeaseTTL: time.Minute,
	}
}

// peopled is an embedded store with an executor that runs nowhere and one
// record in each state.
type peopled struct {
	store    string // as --store takes it
	executor records.ExecutorID
	ids      map[records.State]records.ID
}

func newPeopled(t *testing.T) peopled {
	t.Helper()
	p := peopled{store: sqliteStore(t), ids: make(map[records.State]records.ID)}
	path, _ := sqlitePath(p.store)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := registration()
	if _, err := s.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	p.executor = r.ID
	for _, state := range []records.State{records.InProgress, records.Finalized, records.Unknown, records.Released} {
		key := records.Key{Realm: "shop", Principal: "p", Key: "key of " + string(state)}
		got, err := s.Reserve(t.Context(), records.Reservation{
			ID: key.ID(), Realm: key.Realm, Key: key.Key, Operation: "order", Resource: "7", By: r.ID, Attempt: records.NewToken(),
		})
		if err != nil {
			t.Fatal(err)
		}
		p.ids[state] = key.ID()
		fence := got.Record.Fence()
		switch state {
		case records.Finalized:
			err = s.Finalize(t.Context(), key.ID(), fence, records.Outcome{Response: records.Response{Status: 201, Body: []byte("x")}, Retention: time.Hour})
		case records.Unknown:
			err = s.MarkUnknown(t.Context(), key.ID(), fence, time.Hour)
		case records.Released:
			err = s.Release(t.Context(), key.ID(), fence)
		case records.InProgress:
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// events are what the audit says of a kind, without the instants.
func (p peopled) events(t *testing.T, kind records.EventKind) []records.Event {
	t.Helper()
	path, _ := sqlitePath(p.store)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	page, err := s.Events(t.Context(), records.EventFilter{Kind: kind, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Events {
		page.Events[i].At = time.Time{}
	}
	return page.Events
}
