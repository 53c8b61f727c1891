package transfer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// retries counts what is tried again.
type retries struct{ n atomic.Int32 }

func (*retries) Moved(int64)             {}
func (r *retries) Retried(n int)         { r.n.Add(int32(n)) } //nolint:gosec // few
func (*retries) Ended(records.FlowState) {}
func (*retries) Told(transfer.Outcome)   {}

// stumbling is a source that cannot be had the first times.
type stumbling struct {
	move.Source
	left *atomic.Int32
}

func (s stumbling) Open(ctx context.Context, from int64, validator string) (*move.Body, error) {
	if s.left.Add(-1) >= 0 {
		return nil, &move.Fault{End: move.AtSource, Kind: move.ErrUnavailable, Transient: true}
	}
	return s.Source.Open(ctx, from, validator)
}

// TestRetries is about faults that may pass.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source move.Source
		faults int32
		ends   string
		says   string
		want   int32
	}{
		"AreCountedWhenTheyHelp":  {content("good"), 2, "COMPLETED", "", 2},
		"AreCountedWhenTheyDoNot": {panics{}, 0, "TERMINATED", "gave up after 3 tries", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var heard retries
			var left atomic.Int32
			left.Store(c.faults)
			r := newRig(t, func(transfer.Task) (move.Source, error) { return stumbling{c.source, &left}, nil },
				func(p *transfer.Config) { p.Events, p.Rounds = &heard, 3 })
			r.start("f", "d")
			if reason := r.becomes("f", c.ends); !strings.Contains(reason, c.says) {
				t.Errorf("reason = %q, want %q", reason, c.says)
			}
			if got := heard.n.Load(); got != c.want {
				t.Errorf("%d were counted, want %d", got, c.want)
			}
		})
	}
}
