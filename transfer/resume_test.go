package transfer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// choosy lets nothing be written to one address.
type choosy struct{ transfer.Ends }

func (c choosy) Sink(t transfer.Task) (move.Sink, error) {
	if t.Destination().Endpoint == "file://forbidden" {
		return nil, errors.New("may not be written to")
	}
	return c.Ends.Sink(t)
}

// late is a source that gives half of its bytes when it is opened first, and
// all of them later.
type late struct{ opened *atomic.Int32 }

func (l late) Open(ctx context.Context, from int64, _ string) (*move.Body, error) {
	if l.opened.Add(1) == 1 {
		return halfway{new(atomic.Int32)}.Open(ctx, 0, "")
	}
	rest := strings.NewReader(strings.Repeat("\x00", int(halfwaySize-from)))
	return &move.Body{ReadCloser: io.NopCloser(rest), From: from, Length: halfwaySize, Validator: "v"}, nil
}

// TestResume is about the address that a resume may bring along.
func TestResume(t *testing.T) {
	t.Parallel()
	suspended := func(t *testing.T) *rig {
		t.Helper()
		var s flowStore
		var opened atomic.Int32
		r := newRig(t, func(transfer.Task) (move.Source, error) { return late{&opened}, nil }, func(p *transfer.Config) {
			s, p.Ends = p.Store.(flowStore), choosy{p.Ends}
		})
		r.start("f", "d")
		r.await("half of it is there", func() bool {
			h, err := s.LoadFlow(t.Context(), "f")
			return err == nil && h.Flow.Progress.Bytes == halfwaySize/2
		})
		if status, code, _ := r.ask(http.MethodPost, "/f/suspend", `{"messageId":"m"}`); status != http.StatusOK {
			t.Fatalf("suspend: %d %s", status, code)
		}
		return r
	}
	at := func(endpoint string) string {
		return `{"messageId":"m","dataAddress":{"endpointType":"file","endpoint":"file://` + endpoint + `"}}`
	}
	t.Run("AtAnotherAddressLeavesNothingAtTheFirst", func(t *testing.T) {
		t.Parallel()
		r := suspended(t)
		if status, code, _ := r.ask(http.MethodPost, "/f/resume", at("elsewhere")); status != http.StatusOK {
			t.Fatalf("resume: %d %s", status, code)
		}
		r.becomes("f", "COMPLETED")
		left, err := os.ReadDir(r.dir)
		if err != nil || len(left) != 1 || left[0].Name() != "elsewhere" {
			t.Errorf("the sink holds %v, %v", left, err)
		}
		if info, err := os.Stat(r.dir + "/elsewhere"); err != nil || info.Size() != halfwaySize {
			t.Errorf("elsewhere: %v, %v", info, err)
		}
	})
	t.Run("AtAnAddressThatIsNotAllowedIsRefusedAndChangesNothing", func(t *testing.T) {
		t.Parallel()
		r := suspended(t)
		if status, code, _ := r.ask(http.MethodPost, "/f/resume", at("forbidden")); status != http.StatusBadRequest || code != "invalid_message" {
			t.Errorf("resume: %d %s", status, code)
		}
		r.becomes("f", "SUSPENDED")
		if status, code, _ := r.ask(http.MethodPost, "/f/resume", at("f")); status != http.StatusOK {
			t.Errorf("resume where it was: %d %s", status, code)
		}
		r.becomes("f", "COMPLETED")
	})
}
