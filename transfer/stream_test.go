package transfer_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

const pullMessage = `{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x","processId":"f","agreementId":"a",
	"datasetId":"d","profile":"x-pull"}`

// pull starts a pull, and returns how much could be read of it and how that
// ended.
func (r *rig) pull() (read int64, err error) {
	r.t.Helper()
	token := r.offered("/start", pullMessage)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+"/f/data", http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	data, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer data.Body.Close()
	if data.StatusCode != http.StatusOK {
		r.t.Fatalf("read: %d", data.StatusCode)
	}
	return io.Copy(io.Discard, data.Body)
}

// TestPull is about readers of a dataset that is bad.
func TestPull(t *testing.T) {
	t.Parallel()
	public := func(p *transfer.Config) { p.PublicURL = "https://data.example/dataflows" }
	t.Run("OfASourceThatStallsBreaksOff", func(t *testing.T) {
		t.Parallel()
		var opened atomic.Int32
		r := newRig(t, func(transfer.Task) (move.Source, error) { return halfway{&opened}, nil }, func(p *transfer.Config) {
			public(p)
			p.StallTimeout = 50 * time.Millisecond
		})
		if n, err := r.pull(); err == nil {
			t.Errorf("%d bytes were taken for the whole", n)
		}
	})
	t.Run("OfAnEndlessSourceBreaksOffAtTheLimit", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, func(transfer.Task) (move.Source, error) { return endless{}, nil }, func(p *transfer.Config) {
			public(p)
			p.MaxBytes = 1 << 20
		})
		if n, err := r.pull(); err == nil || n > 1<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// TestAtOnce is about requests that come at the same moment.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("NoMoreStartsAreLetInThanThereArePlaces", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		r := newRig(t, func(transfer.Task) (move.Source, error) { return held{release}, nil },
			func(p *transfer.Config) { p.Flows, p.Queue = 1, 1 })
		var letIn, refused atomic.Int32
		var starting sync.WaitGroup
		for i := range 24 {
			starting.Go(func() {
				switch status, code := r.start(string(rune('a'+i)), "d"); status {
				case http.StatusOK:
					letIn.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("start: %d %s", status, code)
				}
			})
		}
		starting.Wait()
		if letIn.Load() < 1 || letIn.Load() > 2 {
			t.Errorf("%d were let in, %d refused", letIn.Load(), refused.Load())
		}
		close(release)
	})
	t.Run("StartsOfAFlowThatWasPreparedAreOneAndItsRepeats", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, good, func(p *transfer.Config) { p.PublicURL = "https://data.example/dataflows" })
		if status, state, _ := r.ask(http.MethodPost, "/prepare", pullMessage); status != http.StatusOK || state != "PREPARED" {
			t.Fatalf("prepare: %d %s", status, state)
		}
		var starting sync.WaitGroup
		for range 16 {
			starting.Go(func() {
				if status, state, _ := r.ask(http.MethodPost, "/start", pullMessage); status != http.StatusOK || state != "STARTED" {
					t.Errorf("start: %d %s", status, state)
				}
			})
		}
		starting.Wait()
	})
}
