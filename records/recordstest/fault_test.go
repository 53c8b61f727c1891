package recordstest

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/probate-dev/probate/records"
)

// beating is a store of which only Heartbeat and Drain work.
type beating struct {
	records.Store
	beats  int64
	drains int
}

func (s *beating) Heartbeat(context.Context, records.ExecutorID) (records.Executor, error) {
	s.beats++
	return records.Executor{Beat: s.beats}, nil
}

func (s *beating) Drain(context.Context, records.ExecutorID) error {
	s.drains++
	return records.ErrNotActive
}

func TestFaulty(t *testing.T) {
	beat := func(s records.Store) (int64, error) {
		e, err := s.Heartbeat(t.Context(), records.ExecutorID{})
		return e.Beat, err
	}
	demand := func(t *testing.T, s records.Store, wantBeat int64, wantErr error) {
		t.Helper()
		if got, err := beat(s); got != wantBeat || !errors.Is(err, wantErr) {
			t.Errorf("beat %d, %v, want %d, %v", got, err, wantBeat, wantErr)
		}
	}

	t.Run("PassesThroughUntilToldOtherwise", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		demand(t, s, 1, nil)
		s.Once(Reserve, Down)
		demand(t, s, 2, nil)
		if n := s.Calls(Heartbeat); n != 2 {
			t.Errorf("%d calls counted, want 2", n)
		}
	})
	t.Run("FailsBeforeOnceInOrder", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		s.Once(Heartbeat, Down)
		s.Once(Heartbeat, Fault{Err: io.EOF})
		demand(t, s, 0, records.ErrUnavailable)
		demand(t, s, 0, io.EOF)
		demand(t, s, 1, nil)
	})
	t.Run("LosesTheReplyOfWhatItPerformed", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		s.Once(Heartbeat, LostReply)
		demand(t, s, 0, records.ErrUnavailable)
		demand(t, s, 2, nil)
	})
	t.Run("ARefusalIsNotLost", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		s.Once(Drain, LostReply)
		if err := s.Drain(t.Context(), records.ExecutorID{}); !errors.Is(err, records.ErrNotActive) || under.drains != 1 {
			t.Errorf("%v after %d drains, want ErrNotActive after 1", err, under.drains)
		}
	})
	t.Run("FailsUntilStopped", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		stop := s.Always(Heartbeat, Down)
		for range 3 {
			demand(t, s, 0, records.ErrUnavailable)
		}
		stop()
		demand(t, s, 1, nil)
	})
	t.Run("AnOldStopDoesNotEndANewFault", func(t *testing.T) {
		s := NewFaulty(&beating{})
		stop := s.Always(Heartbeat, Down)
		s.Always(Heartbeat, Fault{Err: io.EOF})
		stop()
		demand(t, s, 0, io.EOF)
	})
	t.Run("PausesUntilLetGoOrCancelled", func(t *testing.T) {
		under := &beating{}
		s := NewFaulty(under)
		gate := make(chan struct{})
		s.Once(Heartbeat, Fault{Pause: gate})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.EOF)
		if _, err := s.Heartbeat(ctx, records.ExecutorID{}); !errors.Is(err, io.EOF) || under.beats != 0 {
			t.Errorf("%v after %d beats, want the context's cause after none", err, under.beats)
		}
		s.Once(Heartbeat, Fault{Performed: true, Pause: gate})
		done := make(chan error)
		go func() {
			_, err := beat(s)
			done <- err
		}()
		close(gate)
		if err := <-done; !errors.Is(err, records.ErrUnavailable) || under.beats != 1 {
			t.Errorf("%v after %d beats, want ErrUnavailable after 1", err, under.beats)
		}
	})
}

// TestFaulty_StandsBeforeEveryMethod: the store beneath is nil, so a method
// that Faulty did not override would panic.
func TestFaulty_StandsBeforeEveryMethod(t *testing.T) {
	s := NewFaulty(nil)
	value := reflect.ValueOf(s)
	for method := range reflect.TypeFor[records.Store]().Methods() {
		if method.Name == "Close" {
			continue // not a call to the database
		}
		t.Run(method.Name, func(t *testing.T) {
			s.Once(Call(method.Name), Down)
			args := []reflect.Value{reflect.ValueOf(t.Context())}
			for i := 1; i < method.Type.NumIn(); i++ {
				if !method.Type.IsVariadic() || i < method.Type.NumIn()-1 {
					args = append(args, reflect.Zero(method.Type.In(i)))
				}
			}
			results := value.MethodByName(method.Name).Call(args)
			err, _ := reflect.TypeAssert[error](results[len(results)-1])
			if !errors.Is(err, records.ErrUnavailable) {
				t.Errorf("error = %v, want ErrUnavailable", err)
			}
			if n := s.Calls(Call(method.Name)); n != 1 {
				t.Errorf("%d calls counted, want 1", n)
			}
		})
	}
}
