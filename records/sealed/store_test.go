package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
)

// stores are the ways to open a fresh database, and more nodes' stores over it.
var stores = map[string]recordstest.Fresh{
	"SQLite": func(t testing.TB) func(testing.TB) records.Store {
		path := filepath.Join(t.TempDir(), "probate.db")
		return func(t testing.TB) records.Store {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test", Grace: recordstest.Grace, Patience: time.Minute})
			return closing(t, s, err)
		}
	},
	"PostgreSQL": func(t testing.TB) func(testing.TB) records.Store {
		dsn := postgrestest.Cleared(t)
		return func(t testing.TB) records.Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: "test", Grace: recordstest.Grace})
			return closing(t, s, err)
		}
	},
}

func closing(t testing.TB, s records.Store, err error) records.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, fresh := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recordstest.Run(t, func(t testing.TB) func(testing.TB) records.Store {
				open := fresh(t)
				return func(t testing.TB) records.Store {
					return sealed.New(sealed.Config{Keys: parse(t, "a:"+secret("a"))}).Over(open(t))
				}
			})
		})
	}
}

// sight is a database seen with keys, and as it is.
type sight struct {
	t       *testing.T
	sealer  *sealed.Sealer
	sealed  records.Store
	raw     records.Store
	by      records.ExecutorID
	log     *bytes.Buffer
	reasons []sealed.Reason
}

// onEach runs a rule over both stores.
func onEach(t *testing.T, name string, rule func(s *sight)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for store, fresh := range stores {
			t.Run(store, func(t *testing.T) {
				t.Parallel()
				s := &sight{t: t, raw: fresh(t)(t), log: new(bytes.Buffer)}
				s.sealer = sealed.New(sealed.Config{
					Keys: parse(t, "a:"+secret("a")), Logger: slog.New(slog.NewTextHandler(s.log, nil)),
					Unsealable: func(r sealed.Reason) { s.reasons = append(s.reasons, r) },
				})
				s.sealed = s.sealer.Over(s.raw)
				s.by = s.executor()
				rule(s)
			})
		}
	})
}

func (s *sight) executor() records.ExecutorID {
	s.t.Helper()
	id := records.ExecutorID(records.NewToken())
	_, err := s.raw.Register(s.t.Context(), records.Registration{
		ID: id, Slot: id.String(), URL: "http://192.0.2.1:1", PublicKey: make([]byte, 32), Policy: records.PolicyProbe, LeaseTTL: time.Hour,
	})
	s.check(err)
	return id
}

func (s *sight) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sight) reservation(key string, request []byte) records.Reservation {
	return records.Reservation{ID: records.Key{Key: key}.ID(), Key: key, Operation: "op", Request: request, By: s.by, Attempt: records.NewToken()}
}

// claim reserves a key, through the keys.
func (s *sight) claim(key string, request []byte) records.Record {
	s.t.Helper()
	got, err := s.sealed.Reserve(s.t.Context(), s.reservation(key, request))
	s.check(err)
	if !got.Owned || !bytes.Equal(got.Record.Request, request) {
		s.t.Fatalf("owned %t, request %q", got.Owned, got.Record.Request)
	}
	return got.Record
}

func answer(body []byte) records.Outcome {
	return records.Outcome{Response: records.Response{Status: 201, Body: body}, Retention: time.Hour}
}

// finalize finalizes a fresh key through a store.
func (s *sight) finalize(through records.Store, key string, body []byte) records.Record {
	s.t.Helper()
	r := s.claim(key, nil)
	s.check(through.Finalize(s.t.Context(), r.ID, r.Fence(), answer(body)))
	return r
}

func (s *sight) stored(id records.ID) records.Record {
	s.t.Helper()
	h, err := s.raw.Load(s.t.Context(), id)
	s.check(err)
	return h.Record
}

// wants demands that a record is answered from with this body.
func (s *sight) wants(id records.ID, body []byte) {
	s.t.Helper()
	h, err := s.sealed.Load(s.t.Context(), id)
	s.check(err)
	if got := h.Record.Response.Body; !bytes.Equal(got, body) || (got == nil) != (body == nil) {
		s.t.Errorf("body = %q, want %q", got, body)
	}
}

// refuses demands that neither way to a record gives it away, each loudly.
func (s *sight) refuses(id records.ID, key string, reason sealed.Reason) {
	s.t.Helper()
	s.reasons = nil
	s.log.Reset()
	h, err := s.sealed.Load(s.t.Context(), id)
	if !errors.Is(err, records.ErrSealed) || h.Record.Response != nil || h.Record.Request != nil {
		s.t.Errorf("load: %+v, %v", h.Record, err)
	}
	if e, ok := errors.AsType[*records.SealedError](err); !ok || e.Held.Record.ID != id || e.Held.Record.Request != nil ||
		e.Held.Record.Response != nil && e.Held.Record.Response.Body != nil {
		s.t.Errorf("the error holds %+v", e)
	}
	got, err := s.sealed.Reserve(s.t.Context(), s.reservation(key, nil))
	if !errors.Is(err, records.ErrSealed) || got.Owned || got.Record.Response != nil || got.Record.Request != nil {
		s.t.Errorf("reserve: owned %t, %+v, %v", got.Owned, got.Record, err)
	}
	if want := []sealed.Reason{reason, reason}; !slices.Equal(s.reasons, want) {
		s.t.Errorf("told of %q, want %q", s.reasons, want)
	}
	for line := range strings.Lines(s.log.String()) {
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, id.String()) || !strings.Contains(line, "reason="+string(reason)) {
			s.t.Errorf("logged %q", line)
		}
	}
	if n := strings.Count(s.log.String(), "\n"); n != 2 {
		s.t.Errorf("logged %d lines", n)
	}
}

const magic = "\x8bprobate-seal\r\n\x1a"

func TestStore(t *testing.T) {
	t.Parallel()
	long := []byte("what the answer says")

	onEach(t, "KeepsNothingInTheOpen", func(s *sight) {
		r := s.claim("k", long)
		if got := s.stored(r.ID).Request; len(got) == 0 || bytes.Contains(got, long) {
			s.t.Errorf("the request is stored as %q", got)
		}
		s.check(s.sealed.Finalize(s.t.Context(), r.ID, r.Fence(), answer(long)))
		if got := s.stored(r.ID); bytes.Contains(got.Response.Body, long) || bytes.Contains(got.Request, long) {
			s.t.Errorf("stored as %q", got.Response.Body)
		}
		s.wants(r.ID, long)
	})
	onEach(t, "KeepsNullAndEmptyApart", func(s *sight) {
		s.wants(s.finalize(s.sealed, "null", nil).ID, nil)
		s.wants(s.finalize(s.sealed, "empty", []byte{}).ID, []byte{})
		if got := s.stored(records.Key{Key: "empty"}.ID()).Response.Body; len(got) == 0 {
			s.t.Error("an empty body can be told from others")
		}
	})
	onEach(t, "ReadsWhatWasStoredBeforeThereWereKeys", func(s *sight) {
		s.wants(s.finalize(s.raw, "k", long).ID, long)
		s.wants(s.finalize(s.raw, "empty", []byte{}).ID, []byte{})
	})
	onEach(t, "IsNotConfusedByABodyThatLooksSealed", func(s *sight) {
		theft := s.stored(s.finalize(s.sealed, "victim", long).ID).Response.Body
		for i, body := range [][]byte{[]byte(magic), []byte(magic + "o"), []byte(magic + "s"), theft} {
			open := sealed.New(sealed.Config{}).Over(s.raw)
			for name, through := range map[string]records.Store{"sealed": s.sealed, "open": open} {
				r := s.finalize(through, fmt.Sprint(name, i), body)
				s.wants(r.ID, body)
				if name == "open" { // a node without keys, too
					h, err := open.Load(s.t.Context(), r.ID)
					s.check(err)
					if !bytes.Equal(h.Record.Response.Body, body) {
						s.t.Errorf("body %q came back as %q", body, h.Record.Response.Body)
					}
				}
			}
		}
	})
	onEach(t, "RefusesTheBodyOfAnotherRecord", func(s *sight) {
		theft := s.stored(s.finalize(s.sealed, "victim", long).ID).Response.Body
		r := s.finalize(s.raw, "thief", theft)
		s.refuses(r.ID, "thief", sealed.Corrupt)
	})
	onEach(t, "RefusesTheBodyOfAnotherEpoch", func(s *sight) {
		r := s.claim("k", nil)
		early, err := s.sealer.Seal(r.ID, r.Fence(), records.Response{Status: 201, Body: long})
		s.check(err)
		s.check(s.sealed.Release(s.t.Context(), r.ID, r.Fence()))
		again := s.claim("k", nil)
		s.check(s.raw.Finalize(s.t.Context(), r.ID, again.Fence(), answer(early.Body)))
		s.refuses(r.ID, "k", sealed.Corrupt)
	})
	onEach(t, "RefusesWhatWasAlteredOrCutShort", func(s *sight) {
		for i, change := range []func(b []byte) []byte{
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			func(b []byte) []byte { return b[:len(b)-1] },
			func(b []byte) []byte { return b[:len(magic)] },
		} {
			key := fmt.Sprint(i)
			r := s.claim(key, nil)
			body, err := s.sealer.Seal(r.ID, r.Fence(), records.Response{Status: 201, Body: long})
			s.check(err)
			s.check(s.raw.Finalize(s.t.Context(), r.ID, r.Fence(), answer(change(body.Body))))
			s.refuses(r.ID, key, sealed.Corrupt)
		}
	})
	onEach(t, "RefusesWithoutTheKey", func(s *sight) {
		r := s.finalize(s.sealed, "k", long)
		s.sealer.Exchange(parse(s.t, "b:"+secret("b")))
		s.refuses(r.ID, "k", sealed.UnknownKey)
		s.sealer.Exchange(sealed.Keys{})
		s.refuses(r.ID, "k", sealed.NoKeys)
		s.sealer.Exchange(parse(s.t, "b:"+secret("b")+"\na:"+secret("a")))
		s.wants(r.ID, long)
	})
	onEach(t, "StopsATakeOverBeforeIt", func(s *sight) {
		r := s.claim("k", long)
		s.sealer.Exchange(sealed.Keys{})
		s.refuses(r.ID, "k", sealed.NoKeys)
		if got := s.stored(r.ID); got.State != records.InProgress || got.Fence() != r.Fence() {
			s.t.Errorf("the record is %s at %s", got.State, got.Fence())
		}
	})
	onEach(t, "HandsTheRequestToWhoTakesOver", func(s *sight) {
		r := s.claim("k", long)
		won, err := s.sealed.TakeOver(s.t.Context(), records.TakeOver{
			ID: r.ID, From: r.Fence(), By: s.executor(), Attempt: records.NewToken(), SignedNotRunning: true,
		})
		s.check(err)
		if !bytes.Equal(won.Request, long) {
			s.t.Errorf("request = %q", won.Request)
		}
		again, err := s.sealed.TakeOver(s.t.Context(), records.TakeOver{
			ID: r.ID, From: won.Fence(), By: s.by, Attempt: records.NewToken(), SignedNotRunning: true,
		})
		s.check(err)
		if !bytes.Equal(again.Request, long) {
			s.t.Errorf("request = %q after two take-overs", again.Request)
		}
	})
	onEach(t, "ListsWhatItCannotOpen", func(s *sight) {
		a, b := s.claim("a", long), s.claim("b", nil)
		s.sealer.Exchange(sealed.Keys{})
		all, err := s.sealed.InProgress(s.t.Context(), s.by, records.ID{}, 10)
		s.check(err)
		if len(all) != 2 || all[0].Request != nil || all[1].Request != nil {
			s.t.Errorf("listed %d of %s and %s", len(all), a.ID, b.ID)
		}
	})
	onEach(t, "ReplaysWhenOnlyTheRequestsKeyIsGone", func(s *sight) {
		r := s.claim("k", long)
		s.sealer.Exchange(parse(s.t, "b:"+secret("b")+"\na:"+secret("a")))
		s.check(s.sealed.Finalize(s.t.Context(), r.ID, r.Fence(), answer(long)))
		s.sealer.Exchange(parse(s.t, "b:"+secret("b")))
		s.wants(r.ID, long)
	})
	onEach(t, "AnOperatorsAnswerIsSealedAndARepeatIsKnown", func(s *sight) {
		r := s.claim("k", long)
		s.check(s.sealed.MarkUnknown(s.t.Context(), r.ID, r.Fence(), time.Hour))
		i := records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "ops", Reason: "looked"}
		for range 2 {
			got, err := s.sealed.ResolveByOperator(s.t.Context(), i, answer(long))
			s.check(err)
			if got.State != records.Finalized || !bytes.Equal(got.Response.Body, long) {
				s.t.Errorf("%s with %q", got.State, got.Response.Body)
			}
		}
		if got := s.stored(r.ID).Response.Body; bytes.Contains(got, long) {
			s.t.Errorf("stored as %q", got)
		}
		s.wants(r.ID, long)
	})
	onEach(t, "AnOperatorReleasesWhatNobodyCanOpen", func(s *sight) {
		r := s.claim("k", long)
		s.check(s.sealed.MarkUnknown(s.t.Context(), r.ID, r.Fence(), time.Hour))
		s.sealer.Exchange(sealed.Keys{})
		s.refuses(r.ID, "k", sealed.NoKeys)
		got, err := s.sealed.ReleaseByOperator(s.t.Context(), records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "ops", Reason: "lost"})
		s.check(err)
		if got.State != records.Released || got.Request != nil {
			s.t.Errorf("%s with %q", got.State, got.Request)
		}
		s.claim("k", nil)
	})
	onEach(t, "LeavesTheCallersBytesAlone", func(s *sight) {
		mine := bytes.Clone(long)
		o := answer(mine)
		r := s.claim("k", mine)
		s.check(s.sealed.Finalize(s.t.Context(), r.ID, r.Fence(), o))
		if !bytes.Equal(mine, long) || &o.Response.Body[0] != &mine[0] {
			s.t.Error("what was passed was changed")
		}
	})
}

func TestStore_Sizes(t *testing.T) {
	t.Parallel()
	sealer := sealed.New(sealed.Config{Keys: parse(t, "a:"+secret("a"))})
	largest := bytes.Repeat([]byte("x"), records.MaxBodyBytes)
	t.Run("ABodyTooLongOnceSealedIsATombstone", func(t *testing.T) {
		t.Parallel()
		r := records.Response{Status: 201, Headers: []records.Header{{Name: "X", Value: "y"}, {Name: "Location", Value: "/7"}}, Body: largest}
		got, err := sealer.Seal(records.ID{1}, records.Fence{Epoch: 1}, r)
		if err != nil || got.Body != nil || got.Status != 201 || len(r.Headers) != 2 {
			t.Fatalf("%d bytes, status %d, %v", len(got.Body), got.Status, err)
		}
		names := make([]string, len(got.Headers))
		for i, h := range got.Headers {
			names[i] = h.Name + " " + h.Value
		}
		if !slices.Equal(names[:2], []string{"Location /7", fmt.Sprint("Content-Length ", len(largest))}) || !strings.HasPrefix(names[2], "Content-Digest sha-256=:") {
			t.Errorf("headers = %q", names)
		}
		r.Body = largest[200:]
		if got, err := sealer.Seal(records.ID{1}, records.Fence{Epoch: 1}, r); err != nil || len(got.Body) <= len(r.Body) || len(got.Body) > records.MaxBodyBytes {
			t.Errorf("%d bytes became %d, %v", len(r.Body), len(got.Body), err)
		}
	})
	t.Run("WithoutKeysTheLargestBodyFits", func(t *testing.T) {
		t.Parallel()
		got, err := sealed.New(sealed.Config{}).Seal(records.ID{1}, records.Fence{Epoch: 1}, records.Response{Status: 201, Body: largest})
		if err != nil || len(got.Body) != len(largest) {
			t.Errorf("%d bytes, %v", len(got.Body), err)
		}
	})
	t.Run("ARequestTooLongOnceSealedIsRefusedBeforeAnyStatement", func(t *testing.T) {
		t.Parallel()
		_, err := sealer.Over(nowhere{}).Reserve(t.Context(), records.Reservation{ID: records.ID{1}, Request: largest})
		if !errors.Is(err, records.ErrInvalid) {
			t.Errorf("error = %v", err)
		}
	})
}

// nowhere is a store that must not be asked.
type nowhere struct{ records.Store }

func (nowhere) Reserve(context.Context, records.Reservation) (records.Reserved, error) {
	return records.Reserved{}, errors.New("the store was asked")
}
