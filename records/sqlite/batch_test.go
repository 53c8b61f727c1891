package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// batchTest runs in a bubble, in which it is known when a caller has queued.
type batchTest struct {
	*testing.T
	*sqlite.Store
	by    records.ExecutorID
	sizes []int
}

func inBubble(t *testing.T, name string, check func(b *batchTest)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &batchTest{T: t}
			b.Store = open(t, sqlite.WithObserve(sqlite.Config{}, func(n int) { b.sizes = append(b.sizes, n) }))
			b.by = register(t, b.Store, records.Registration{}).ID
			check(b)
		})
	})
}

// together makes the calls queue while a transaction runs, one after the other,
// so that they share the next one.
func (b *batchTest) together(calls ...func()) {
	b.Helper()
	leave := occupy(b.T, b.Store)
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
		synctest.Wait()
	}
	b.sizes = nil
	close(leave)
	wg.Wait()
	synctest.Wait()
}

func (b *batchTest) sharedOne(n int) {
	b.Helper()
	if len(b.sizes) != 1 || b.sizes[0] != n {
		b.Errorf("batches of %v, want one of %d", b.sizes, n)
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()

	inBubble(t, "TakesAllThatQueued", func(b *batchTest) {
		calls := make([]func(), 20)
		for i := range calls {
			calls[i] = func() { reserve(b.T, b.Store, b.by) }
		}
		b.together(calls...)
		b.sharedOne(len(calls))
	})

	inBubble(t, "GrantsAKeyOnce", func(b *batchTest) {
		first := reservation(b.by)
		second := first
		second.Attempt = records.NewToken()
		var got [3]records.Reserved
		var errs [3]error
		b.together(
			func() { got[0], errs[0] = b.Reserve(b.Context(), first) },
			func() { got[1], errs[1] = b.Reserve(b.Context(), second) },
			func() { got[2], errs[2] = b.Reserve(b.Context(), first) }, // a repeat, its reply was lost
		)
		b.sharedOne(3)
		if err := errors.Join(errs[:]...); err != nil {
			b.Fatal(err)
		}
		if !got[0].Owned || got[1].Owned || !got[2].Owned {
			b.Errorf("owned: %t, %t, %t; want the first and its repeat", got[0].Owned, got[1].Owned, got[2].Owned)
		}
		if got[1].Record.Fence() != got[0].Record.Fence() {
			b.Errorf("the second found %s, want %s", got[1].Record.Fence(), got[0].Record.Fence())
		}
	})

	inBubble(t, "ARefusalIsOneCallersOwn", func(b *batchTest) {
		r, other := reserve(b.T, b.Store, b.by), reserve(b.T, b.Store, b.by)
		late := records.Fence{Executor: b.by, Epoch: r.Epoch - 1}
		var errs [3]error
		b.together(
			func() { errs[0] = b.Release(b.Context(), r.ID, late) },
			func() { errs[1] = b.Release(b.Context(), other.ID, other.Fence()) },
			func() { _, errs[2] = b.Register(b.Context(), registration(records.Registration{})) },
		)
		b.sharedOne(3)
		if !errors.Is(errs[0], records.ErrFenced) || errs[1] != nil || errs[2] != nil {
			b.Errorf("errors = %v, want ErrFenced for the first alone", errs)
		}
	})

	inBubble(t, "ARegistrationThatFindsItsSlotTakenFencesNobody", func(b *batchTest) {
		a := register(b.T, b.Store, records.Registration{Slot: "a"})
		again := registration(records.Registration{ID: a.ID, Slot: "a"})
		thief := registration(records.Registration{Slot: "a", Replaces: records.Sighting{Executor: a.ID, Beat: 7}})
		var errs [3]error
		b.together(
			func() { _, errs[0] = b.Register(b.Context(), thief) },
			func() { _, errs[1] = b.Register(b.Context(), again) },
			func() { _, errs[2] = b.Heartbeat(b.Context(), a.ID) },
		)
		if !errors.Is(errs[0], records.ErrSlotTaken) || errs[1] != nil || errs[2] != nil {
			b.Errorf("errors = %v, want ErrSlotTaken for the first alone", errs)
		}
	})

	inBubble(t, "ARowThatDoesNotFitFailsAlone", func(b *batchTest) {
		small, large := reserve(b.T, b.Store, b.by), reserve(b.T, b.Store, b.by)
		outcome := func(body []byte) records.Outcome {
			return records.Outcome{Response: records.Response{Status: 200, Body: body}, Retention: time.Hour}
		}
		if err := sqlite.LimitPages(b.Store, 100); err != nil {
			b.Fatal(err)
		}
		var errs [3]error
		b.together(
			func() { errs[0] = b.Finalize(b.Context(), small.ID, small.Fence(), outcome([]byte("fits"))) },
			func() {
				errs[1] = b.Finalize(b.Context(), large.ID, large.Fence(), outcome(bytes.Repeat([]byte("x"), 1<<20)))
			},
			func() { _, errs[2] = b.Reserve(b.Context(), reservation(b.by)) },
		)
		b.sharedOne(3)
		if errs[0] != nil || errs[2] != nil {
			b.Errorf("the batch-mates failed: %v, %v", errs[0], errs[2])
		}
		if !errors.Is(errs[1], records.ErrUnavailable) || !errors.Is(errs[1], sqlite3.FULL) {
			b.Errorf("finalize = %v, want ErrUnavailable because the disk is full", errs[1])
		}
		held, err := b.Load(b.Context(), large.ID)
		if err != nil || held.Record.State != records.InProgress {
			b.Errorf("the record that did not fit is %q, %v; want in progress", held.Record.State, err)
		}
		if err := b.Finalize(b.Context(), large.ID, large.Fence(), outcome([]byte("fits"))); err != nil {
			b.Errorf("finalize afterwards: %v", err)
		}
	})

	inBubble(t, "ACancelledCallerLeavesAlone", func(b *batchTest) {
		gone := errors.New("client went away")
		ctx, cancel := context.WithCancelCause(b.Context())
		stay, leave := reservation(b.by), reservation(b.by)
		var errs [2]error
		b.together(
			func() { _, errs[0] = b.Reserve(b.Context(), stay) },
			func() { _, errs[1] = b.Reserve(ctx, leave) },
			func() { cancel(gone) },
		)
		if errs[0] != nil || !errors.Is(errs[1], gone) || !errors.Is(errs[1], records.ErrUnavailable) {
			b.Errorf("errors = %v, want ErrUnavailable and the cause for the second alone", errs)
		}
		if _, err := b.Load(b.Context(), stay.ID); err != nil {
			b.Errorf("load the other's record: %v", err)
		}
	})

	inBubble(t, "CloseWaitsForWhatHasQueued", func(b *batchTest) {
		r := reservation(b.by)
		var errs [2]error
		b.together(
			func() { _, errs[0] = b.Reserve(b.Context(), r) },
			func() { errs[1] = b.Close() },
		)
		if err := errors.Join(errs[:]...); err != nil {
			b.Errorf("reserve and close: %v", err)
		}
	})
}
