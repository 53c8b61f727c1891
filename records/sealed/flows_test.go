package sealed_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
)

func TestFlows(t *testing.T) {
	t.Parallel()
	message := []byte(`{"what":"lets somebody in"}`)
	onEach(t, "TheirMessagesAreSealed", func(s *sight) {
		raw := s.raw.(records.Flows)
		flows := s.sealer.OverFlows(raw)
		created, fresh, err := flows.CreateFlow(s.t.Context(), records.NewFlow{
			ID: "f", Record: records.ID{7}, State: records.FlowPrepared, Attempt: records.NewToken(), Message: message,
		})
		s.check(err)
		if !fresh || !bytes.Equal(created.Message, message) {
			s.t.Errorf("fresh %t with %q", fresh, created.Message)
		}
		stored, err := raw.LoadFlow(s.t.Context(), "f")
		s.check(err)
		if len(stored.Flow.Message) == 0 || bytes.Contains(stored.Flow.Message, message) {
			s.t.Errorf("stored as %q", stored.Flow.Message)
		}
		if held, err := flows.LoadFlow(s.t.Context(), "f"); err != nil || !bytes.Equal(held.Flow.Message, message) {
			s.t.Errorf("loaded %q, %v", held.Flow.Message, err)
		}
		s.sealer.Exchange(sealed.Keys{})
		if held, err := flows.LoadFlow(s.t.Context(), "f"); !errors.Is(err, records.ErrSealed) || held.Flow.Message != nil {
			s.t.Errorf("without the key: %q, %v", held.Flow.Message, err)
		}
	})
}
