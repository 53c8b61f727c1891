package probe_test

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

func TestProbeSigned(t *testing.T) {
	t.Parallel()
	a := newNode(t, 1, nil)
	end := a.running.begin(recordID(1))
	c := newClient(t, nil)
	for _, epoch := range []int64{7, 8, 0} { // an entry counts at whatever epoch
		if o := c.Probe(t.Context(), a.executor, recordID(1), epoch); o.Verdict != probe.Running || o.Err != nil || o.Signer != a.executor.ID {
			t.Errorf("running: %+v", o)
		}
	}
	if o := c.Probe(t.Context(), a.executor, recordID(2), 7); o.Verdict != probe.NotRunning || o.Err != nil {
		t.Errorf("another record: %+v", o)
	}
	end()
	if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.NotRunning || !o.Alive() {
		t.Errorf("ended: %+v", o)
	}
	a.status.State = records.Draining
	if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.NotRunning {
		t.Errorf("draining changes nothing: %+v", o)
	}
}

// TestProbeSignedByAnother has another executor at the address of the one
// that is asked.
func TestProbeSignedByAnother(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(there *records.Executor, a *records.Executor)
		known  bool
		want   probe.Verdict
	}{
		{"ANewerBootOfTheSlotIsReplaced", func(there, a *records.Executor) {
			there.HeartbeatAt = a.HeartbeatAt.Add(time.Second)
		}, true, probe.Replaced},
		{"AnOlderBootOfTheSlotIsAStranger", func(there, a *records.Executor) {
			there.HeartbeatAt = a.HeartbeatAt.Add(-time.Second)
		}, true, probe.Stranger},
		{"AFencedBootOfTheSlotIsAStranger", func(there, a *records.Executor) {
			there.HeartbeatAt, there.State = a.HeartbeatAt.Add(time.Second), records.Fenced
		}, true, probe.Stranger},
		{"AnotherSlotIsAStranger", func(there, a *records.Executor) {
			there.HeartbeatAt, a.Slot = a.HeartbeatAt.Add(time.Second), "another"
		}, true, probe.Stranger},
		{"AnUnknownExecutorIsUnknown", func(_, _ *records.Executor) {}, false, probe.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			there := newNode(t, 2, nil)
			defer there.running.begin(recordID(1))()
			a := there.executor // same slot, same address
			a.ID = executorID(1)
			a.PublicKey, _, _ = ed25519.GenerateKey(nil)
			known := there.executor
			row.change(&known, &a)
			var list peers
			if row.known {
				list.add(known)
			}
			c := newClient(t, func(c *probe.ClientConfig) { c.Lookup = list.Lookup })
			o := c.Probe(t.Context(), a, recordID(1), 7)
			if o.Verdict != row.want || !errors.Is(o.Err, probe.ErrNotOurs) || o.Alive() {
				t.Errorf("got %+v, want %v", o, row.want)
			}
			if row.known && o.Signer != there.executor.ID {
				t.Errorf("signer %v", o.Signer)
			}
			if !row.known && (o.Claimed != there.executor.ID || o.Signer != (records.ExecutorID{})) {
				t.Errorf("claimed %v, signer %v", o.Claimed, o.Signer)
			}
		})
	}
}

// TestProbeNotBelieved has answers that are signed and yet no proof.
func TestProbeNotBelieved(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(s *probe.Statement)
	}{
		{"OtherCluster", func(s *probe.Statement) { s.Cluster = "other" }},
		{"OtherNonce", func(s *probe.Statement) { s.Nonce = probe.NewNonce() }},
		{"OtherRecord", func(s *probe.Statement) { s.Record = recordID(99) }},
		{"OtherEpoch", func(s *probe.Statement) { s.Epoch++ }},
		{"OtherSlot", func(s *probe.Statement) { s.Slot = "elsewhere" }},
		{"OtherKind", func(s *probe.Statement) { s.Kind, s.Suspect = probe.KindWitness, s.Executor }},
		{"NotMeFromItself", func(s *probe.Statement) { s.Answer = probe.AnswerNotMe }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, seen := signing(t, row.change)
			o := newClient(t, nil).Probe(t.Context(), a.executor, recordID(1), 7)
			if o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrNotOurs) {
				t.Errorf("got %+v", o)
			}
			if *seen != 1 {
				t.Errorf("asked %d times", *seen)
			}
		})
	}

	t.Run("Control", func(t *testing.T) { // the same server, changing nothing, is believed
		t.Parallel()
		a, _ := signing(t, func(*probe.Statement) {})
		if o := newClient(t, nil).Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.Running {
			t.Errorf("got %+v", o)
		}
	})

	t.Run("WrongKey", func(t *testing.T) {
		t.Parallel()
		a := newNode(t, 1, nil)
		a.executor.PublicKey, _, _ = ed25519.GenerateKey(nil)
		if o := newClient(t, nil).Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrSignature) {
			t.Errorf("got %+v", o)
		}
	})

	t.Run("AnotherKeyThanAtFirstSight", func(t *testing.T) {
		t.Parallel()
		first, second := newNode(t, 1, nil), newNode(t, 1, nil) // one id, two keys
		c := newClient(t, nil)
		if o := c.Probe(t.Context(), first.executor, recordID(1), 7); o.Verdict != probe.NotRunning {
			t.Fatalf("first: %+v", o)
		}
		if o := c.Probe(t.Context(), second.executor, recordID(1), 7); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrUnknownSigner) {
			t.Errorf("second: %+v", o)
		}
	})

	t.Run("Replay", func(t *testing.T) {
		t.Parallel()
		a := newNode(t, 1, nil)
		end := a.running.begin(recordID(1))
		var kept []byte
		direct := a.handler
		a.executor.URL = withHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if kept == nil {
				rec := httptest.NewRecorder()
				direct.ServeHTTP(rec, r)
				kept = rec.Body.Bytes()
			}
			_, _ = w.Write(kept)
		}))
		c := newClient(t, nil)
		if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.Running {
			t.Fatalf("first: %+v", o)
		}
		end()
		if o := c.Probe(t.Context(), a.executor, recordID(1), 7); o.Verdict != probe.Unknown || o.Alive() {
			t.Errorf("replayed: %+v", o)
		}
	})
}

// signing is a node whose answers, always running, are changed before they
// are signed.
func signing(t *testing.T, change func(*probe.Statement)) (*node, *int) {
	t.Helper()
	a := newNode(t, 1, nil)
	seen := new(int)
	a.executor.URL = withHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen++
		rec := httptest.NewRecorder()
		a.handler.ServeHTTP(rec, r)
		s, err := probe.Open(rec.Body.Bytes(), probe.KindRecord, func(records.ExecutorID) (ed25519.PublicKey, bool) {
			return a.executor.PublicKey, true
		})
		if err != nil {
			t.Error(err)
		}
		s.Answer = probe.AnswerRunning
		change(&s)
		b, err := probe.Sign(a.identity.Key, s)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	}))
	return a, seen
}
