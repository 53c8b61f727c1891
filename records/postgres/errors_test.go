package postgres_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

func TestFault(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"08000": "unavailable", "08006": "unavailable", "08P01": "unavailable", // connection
		"57P01": "unavailable", "57P02": "unavailable", "57P03": "unavailable", // shut down, crashed, starting
		"57014": "unavailable", "25P03": "unavailable", "53300": "unavailable", "53100": "unavailable", "58030": "unavailable",
		"40001": "contended", "40P01": "contended", "55P03": "contended",
		"25006": "read-only",
		"22021": "internal", "22P02": "internal", "23505": "internal", "23514": "internal", "42601": "internal", "42501": "internal",
	} {
		err := fmt.Errorf("wrapped: %w", &pq.Error{Code: pqerror.Code(code)})
		if got := postgres.FaultName(err); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
	for _, err := range []error{
		driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded,
		&net.OpError{Op: "dial", Err: errors.New("refused")}, &net.DNSError{Err: "no such host"},
	} {
		if got := postgres.FaultName(err); got != "unavailable" {
			t.Errorf("%v is %s, want unavailable", err, got)
		}
	}
	if got := postgres.FaultName(errors.New("sql: expected 3 arguments")); got != "internal" {
		t.Errorf("a mistake of ours is %s, want internal", got)
	}
}

func TestBatch(t *testing.T) {
	t.Run("ARowThatCannotBeWrittenFailsAlone", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e := a.boot()
		a.exec(`ALTER TABLE probate.records ADD CHECK (key <> 'bad'), ADD CHECK (body <> 'bad')`)
		got, errs := a.store.ReserveBatch([]records.Reservation{
			reservation(e.ID, "k"), reservation(e.ID, "bad"), reservation(e.ID, "l"),
		})
		if !got[0].Owned || !got[2].Owned || errs[1] == nil || errors.Is(errs[1], records.ErrUnavailable) {
			t.Errorf("reserve: owned = %t, %t; errors %v", got[0].Owned, got[2].Owned, errs)
		}
		bad := a.claim(e.ID, "m")
		errs = a.store.FinalizeBatch([]records.Record{got[0].Record, got[2].Record}, done)
		if errs[0] != nil || errs[1] != nil {
			t.Errorf("finalize: %v", errs)
		}
		o := done
		o.Response.Body = []byte("bad")
		if err := a.store.Finalize(t.Context(), bad.ID, bad.Fence(), o); err == nil || errors.Is(err, records.ErrUnavailable) {
			t.Errorf("finalize what cannot be written: %v", err)
		}
	})

	t.Run("OfOneKeyWantedTwiceTheFirstGetsIt", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		one, two := a.boot(), a.boot()
		got, errs := a.store.ReserveBatch([]records.Reservation{
			reservation(one.ID, "k"), reservation(two.ID, "k"), reservation(two.ID, "l"),
		})
		a.check(errors.Join(errs...))
		if !got[0].Owned || got[1].Owned || !got[2].Owned {
			t.Errorf("owned = %t, %t, %t", got[0].Owned, got[1].Owned, got[2].Owned)
		}
		if got[1].Executor.ID != one.ID || got[2].Executor.ID != two.ID {
			t.Error("the executors are not those that hold the records")
		}
	})

	t.Run("OneThatMayNotClaimCostsNoOtherTheKey", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		leaving, active := a.boot(), a.boot()
		a.check(a.store.Drain(t.Context(), leaving.ID))
		got, errs := a.store.ReserveBatch([]records.Reservation{reservation(leaving.ID, "k"), reservation(active.ID, "k")})
		if !got[1].Owned || errs[1] != nil {
			t.Errorf("owned = %t, error %v", got[1].Owned, errs[1])
		}
		// In the second round the key is the other's, and that is an answer.
		if got[0].Owned || !errors.Is(errs[0], records.ErrNotActive) && got[0].Record.Executor != active.ID {
			t.Errorf("the one that is leaving: %+v, %v", got[0], errs[0])
		}
	})

	t.Run("AnArrayKeepsWhatItWasGiven", func(t *testing.T) {
		t.Parallel()
		a := newArena(t)
		e := a.boot()
		empty, some, none := reservation(e.ID, ""), reservation(e.ID, "\x00\xff"), reservation(e.ID, "n")
		empty.Request, some.Request = []byte{}, []byte("\x00{}")
		_, errs := a.store.ReserveBatch([]records.Reservation{empty, some, none})
		a.check(errors.Join(errs...))
		for _, r := range []records.Reservation{empty, some, none} {
			got := a.record(r.ID)
			if got.Key != r.Key || (got.Request == nil) != (r.Request == nil) || string(got.Request) != string(r.Request) {
				t.Errorf("key %q, request %#v; want %q, %#v", got.Key, got.Request, r.Key, r.Request)
			}
		}
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	seen := make(chan postgres.Observation, 100)
	s := openStore(t, postgres.Config{DSN: postgrestest.Database(t), Observe: func(o postgres.Observation) { seen <- o }})
	if _, err := s.Register(t.Context(), registration()); err != nil {
		t.Fatal(err)
	}
	if o := <-seen; o.Name != "open" {
		t.Errorf("first observation = %+v", o)
	}
	if o := <-seen; o.Name != "register" || o.Err != nil || o.Took <= 0 {
		t.Errorf("second observation = %+v", o)
	}
}
