package transfer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// untracked is a start of which nothing is remembered.
var untracked = strings.Replace(wireStart, `"messageId":"m"`, `"messageId":"m","trackable":false`, 1)

// missing is a source that is not there.
type missing struct{}

func (missing) Open(context.Context, int64, string) (*move.Body, error) {
	return nil, &move.Fault{End: move.AtSource, Kind: move.ErrNotFound}
}

// watched is a source that never gives anything, and tells when it was opened
// and when nobody waited for it any more.
type watched struct{ opened, left chan struct{} }

func (w watched) Open(ctx context.Context, _ int64, _ string) (*move.Body, error) {
	close(w.opened)
	<-ctx.Done()
	close(w.left)
	return nil, context.Cause(ctx)
}

// TestUntracked is about transfers that are done by who was asked, and
// forgotten.
func TestUntracked(t *testing.T) {
	t.Parallel()
	t.Run("IsAnsweredWhenItIsDone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, good, func(*transfer.Config) {})
		for range 2 { // and done again when it is asked for again
			if status, state, _ := r.ask(http.MethodPost, "/start", untracked); status != http.StatusOK || state != "COMPLETED" {
				t.Errorf("start: %d %s", status, state)
			}
		}
		if status, code, _ := r.ask(http.MethodGet, "/f/status", ""); status != http.StatusNotFound || code != "flow_not_found" {
			t.Errorf("status: %d %s", status, code)
		}
	})
	t.Run("ThatFailsSaysSoAndLeavesNothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, func(transfer.Task) (move.Source, error) { return missing{}, nil }, func(*transfer.Config) {})
		status, _, body := r.exchange(http.MethodPost, "/start", untracked)
		if status != http.StatusBadGateway || !strings.Contains(body, "transfer_failed") || !strings.Contains(body, "source: not found") {
			t.Errorf("start: %d %s", status, body)
		}
		r.empty()
	})
	t.Run("EndsWithWhoHangsUp", func(t *testing.T) {
		t.Parallel()
		source := watched{make(chan struct{}), make(chan struct{})}
		r := newRig(t, func(transfer.Task) (move.Source, error) { return source, nil }, func(*transfer.Config) {})
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/start", strings.NewReader(untracked))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-source.opened
			hangUp()
		}()
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("start: %v", err)
		}
		<-source.left
		r.empty()
	})
}
