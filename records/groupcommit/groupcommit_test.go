package groupcommit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records/groupcommit"
)

// slow commits in a second of the bubble's time, recording each batch.
type slow struct {
	mu      sync.Mutex
	batches [][]int
}

func (s *slow) commit(batch []int) []groupcommit.Result[int] {
	s.mu.Lock()
	s.batches = append(s.batches, slices.Clone(batch))
	s.mu.Unlock()
	<-time.After(time.Second)
	results := make([]groupcommit.Result[int], len(batch))
	for i, n := range batch {
		if n < 0 {
			results[i].Err = errors.New("negative")
			continue
		}
		results[i].Value = n * 10
	}
	return results
}

func TestCommitter(t *testing.T) {
	t.Run("CommitsTogetherWhatQueuedMeanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			c := groupcommit.New(groupcommit.Config[int]{}, s.commit)
			var wg sync.WaitGroup
			for n := range 10 {
				wg.Go(func() {
					if got, err := c.Do(t.Context(), n); got != n*10 || err != nil {
						t.Errorf("Do(%d) = %d, %v", n, got, err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			want := [][]int{{0}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}
			if !slices.EqualFunc(s.batches, want, slices.Equal) {
				t.Errorf("batches = %v, want %v", s.batches, want)
			}
		})
	})

	t.Run("GivesEachItemItsOwnError", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			c := groupcommit.New(groupcommit.Config[int]{}, s.commit)
			var wg sync.WaitGroup
			for _, n := range []int{1, -2, 3} {
				wg.Go(func() {
					if _, err := c.Do(t.Context(), n); (err != nil) != (n < 0) {
						t.Errorf("Do(%d) = %v", n, err)
					}
				})
			}
			wg.Wait()
		})
	})

	t.Run("ACancelledCallerLeavesAlone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			c := groupcommit.New(groupcommit.Config[int]{}, s.commit)
			gone := errors.New("client went away")
			ctx, cancel := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			for n := range 4 {
				callCtx := t.Context()
				if n == 0 || n == 2 { // one being committed, one still queued
					callCtx = ctx
				}
				wg.Go(func() {
					_, err := c.Do(callCtx, n)
					if left := n == 0 || n == 2; left != errors.Is(err, gone) || !left && err != nil {
						t.Errorf("Do(%d) = %v", n, err)
					}
				})
				synctest.Wait()
			}
			cancel(gone)
			wg.Wait()
			c.Close()
			want := [][]int{{0}, {1, 3}}
			if !slices.EqualFunc(s.batches, want, slices.Equal) {
				t.Errorf("batches = %v, want %v", s.batches, want)
			}
		})
	})

	t.Run("BoundsABatchByItemsAndWeight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			config := groupcommit.Config[int]{MaxItems: 3, MaxWeight: 10, Weight: func(n int) int { return n }}
			c := groupcommit.New(config, s.commit)
			var wg sync.WaitGroup
			for _, n := range []int{0, 1, 2, 3, 4, 9, 50} {
				wg.Go(func() { _, _ = c.Do(t.Context(), n) })
				synctest.Wait()
			}
			wg.Wait()
			want := [][]int{{0}, {1, 2, 3}, {4}, {9}, {50}}
			if !slices.EqualFunc(s.batches, want, slices.Equal) {
				t.Errorf("batches = %v, want %v", s.batches, want)
			}
		})
	})

	t.Run("SpreadsSmallBatchesAndGathersLargeOnes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			c := groupcommit.New(groupcommit.Config[int]{Flushers: 2, Spread: 2}, s.commit)
			var wg sync.WaitGroup
			for n := range 9 {
				wg.Go(func() { _, _ = c.Do(t.Context(), n) })
				synctest.Wait()
				if n == 1 {
					<-time.After(100 * time.Millisecond) // the first two end before the rest
				}
			}
			wg.Wait()
			// 0 and 1 go side by side. Whichever ends first takes the rest, and
			// the other, with seven under way, stops.
			want := [][]int{{0}, {1}, {2, 3, 4, 5, 6, 7, 8}}
			if !slices.EqualFunc(s.batches, want, slices.Equal) {
				t.Errorf("batches = %v, want %v", s.batches, want)
			}
			c.Close() // no flusher is left behind
		})
	})

	t.Run("OneThatMeetsNobodyIsCommittedByItsCaller", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			left := errors.New("left")
			c := groupcommit.New(groupcommit.Config[int]{}, s.commit).Alone(func(ctx context.Context, n int) groupcommit.Result[int] {
				select {
				case <-time.After(time.Second):
					return groupcommit.Result[int]{Value: -n}
				case <-ctx.Done():
					return groupcommit.Result[int]{Err: context.Cause(ctx)}
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := c.Do(ctx, 1); !errors.Is(err, left) {
					t.Errorf("Do(1) = %v, want its caller's cause", err)
				}
			})
			synctest.Wait()
			for _, n := range []int{2, 3} { // meet the first, and wait for it
				wg.Go(func() {
					if got, err := c.Do(t.Context(), n); got != 10*n || err != nil {
						t.Errorf("Do(%d) = %d, %v", n, got, err)
					}
				})
				synctest.Wait()
			}
			cancel(left)
			wg.Wait()
			if want := [][]int{{2, 3}}; !slices.EqualFunc(s.batches, want, slices.Equal) {
				t.Errorf("batches = %v, want %v", s.batches, want)
			}
			for _, want := range []int{40, -4} { // after several one more is batched, then the caller leads
				if got, err := c.Do(t.Context(), 4); got != want || err != nil {
					t.Errorf("Do(4) = %d, %v, want %d", got, err, want)
				}
			}
			c.Close()
			if _, err := c.Do(t.Context(), 5); !errors.Is(err, groupcommit.ErrClosed) {
				t.Errorf("Do after Close = %v, want ErrClosed", err)
			}
		})
	})

	t.Run("CloseWaitsForTheQueueAndRefusesMore", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s slow
			c := groupcommit.New(groupcommit.Config[int]{Flushers: 2}, s.commit)
			var wg sync.WaitGroup
			for n := range 5 {
				wg.Go(func() {
					if _, err := c.Do(t.Context(), n); err != nil {
						t.Errorf("Do(%d) = %v", n, err)
					}
				})
			}
			synctest.Wait()
			c.Close()
			wg.Wait()
			if _, err := c.Do(t.Context(), 9); !errors.Is(err, groupcommit.ErrClosed) {
				t.Errorf("Do after Close = %v, want ErrClosed", err)
			}
		})
	})
}
