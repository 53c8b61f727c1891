// Package groupcommit commits together what queued while the last commit ran.
//
// # Promises
//
// [Committer.Do] returns once the item's batch was committed, with the item's
// own result. Nothing lingers: an item that finds a free flusher starts at
// once, alone if nobody else is there, so a batch of one costs what one
// statement costs. Under load a batch is as large as the last commit was
// slow. Items enter batches in the order in which they came.
//
// A caller whose context ends leaves alone: if its item still waits it is
// taken out of the queue, and if it is being committed the batch goes on for
// the others. No goroutine is left when the queue is empty.
//
// # Not promised
//
// Two items of one batch may concern the same row, and with two flushers two
// batches may; telling them apart is the commit function's work.
//
// # Imports
//
// The standard library.
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// ErrClosed is returned for items that come after Close.
var ErrClosed = errors.New("group commit is closed")

// Result is what became of one item.
type Result[Out any] struct {
	Value Out
	Err   error
}

// Config bounds the batches. The zero value of a field is its default.
type Config[In any] struct {
	Flushers  int             // commits at once; default 1
	Spread    int             // a second commit starts only beside fewer items than these; default no limit
	MaxItems  int             // items in a batch; default 512
	Weight    func(In) int    // bytes of an item; default 0
	MaxWeight int             // bytes in a batch, though one item always goes; default 4 MiB
	Observe   func(items int) // called with the size of every batch; default nothing
}

func (c Config[In]) withDefaults() Config[In] {
	if c.Flushers == 0 {
		c.Flushers = 1
	}
	if c.Spread == 0 {
		c.Spread = math.MaxInt
	}
	if c.MaxItems == 0 {
		c.MaxItems = 512
	}
	if c.MaxWeight == 0 {
		c.MaxWeight = 4 << 20
	}
	if c.Weight == nil {
		c.Weight = func(In) int { return 0 }
	}
	if c.Observe == nil {
		c.Observe = func(int) {}
	}
	return c
}

// Commit writes a batch, in order, and returns one result an item. It must
// bound its own time: no caller's context reaches it.
type Commit[In, Out any] func(batch []In) []Result[Out]

// Committer queues items and commits them in batches.
type Committer[In, Out any] struct {
	config Config[In]
	commit Commit[In, Out]
	alone  func(ctx context.Context, in In) Result[Out] // may be nil

	mu       sync.Mutex
	queue    []*item[In, Out]
	flushing int // flushers
	underWay int // items in their batches
	last     int // items in the batch that was taken last
	closed   bool
	flushers sync.WaitGroup
}

type item[In, Out any] struct {
	in     In
	weight int
	result chan Result[Out] // capacity 1, so that a flusher never waits for a caller
}

// New returns a committer. It starts nothing.
func New[In, Out any](config Config[In], commit Commit[In, Out]) *Committer[In, Out] {
	return &Committer[In, Out]{config: config.withDefaults(), commit: commit}
}

// Alone sets how an item is committed that meets nobody else: in its caller's
// goroutine and under its caller's context, with which it must end. Two changes
// of goroutine cost as much as a quick commit, so a caller that is alone is
// spared them. To be called before the first Do.
func (c *Committer[In, Out]) Alone(commit func(ctx context.Context, in In) Result[Out]) *Committer[In, Out] {
	c.alone = commit
	return c
}

// Do commits in with whatever else has queued. If ctx ends first the error is
// its cause and the item may or may not have been committed.
func (c *Committer[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	var none Out
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if c.alone != nil && c.lead() {
		defer c.follow()
		c.config.Observe(1)
		r := c.alone(ctx, in)
		return r.Value, r.Err
	}
	it := &item[In, Out]{in: in, weight: c.config.Weight(in), result: make(chan Result[Out], 1)}
	if err := c.enqueue(it); err != nil {
		return none, err
	}
	select {
	case r := <-it.result:
		return r.Value, r.Err
	case <-ctx.Done():
		c.withdraw(it)
		return none, context.Cause(ctx)
	}
}

// lead takes a flusher's place for a caller that meets nobody else.
func (c *Committer[In, Out]) lead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) > 0 || c.last > 1 || c.flushing >= c.config.Flushers || c.underWay >= c.config.Spread {
		return false
	}
	c.flushing++
	c.underWay++
	c.last = 1
	c.flushers.Add(1)
	return true
}

// follow gives the place back, or to a flusher for what has queued meanwhile.
func (c *Committer[In, Out]) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.flushers.Done()
	c.underWay--
	if len(c.queue) > 0 && c.underWay < c.config.Spread {
		c.flushers.Go(c.flush)
		return
	}
	c.flushing--
}

// Close refuses new items and waits until what has queued is committed.
func (c *Committer[In, Out]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.flushers.Wait()
}

func (c *Committer[In, Out]) enqueue(it *item[In, Out]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.queue = append(c.queue, it)
	if c.flushing < c.config.Flushers && c.underWay < c.config.Spread {
		c.flushing++
		c.flushers.Go(c.flush)
	}
	return nil
}

func (c *Committer[In, Out]) withdraw(it *item[In, Out]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queue, it); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
}

// flush commits batch after batch until nothing is queued, or what is queued
// had better wait for the other flushers' batches.
func (c *Committer[In, Out]) flush() {
	done := 0
	for {
		if c.crowded() {
			runtime.Gosched()
		}
		batch := c.take(done)
		if batch == nil {
			return
		}
		c.config.Observe(len(batch))
		ins := make([]In, len(batch))
		for i, it := range batch {
			ins[i] = it.in
		}
		results := c.commit(ins)
		if len(results) != len(batch) {
			panic(fmt.Sprintf("groupcommit: %d results for %d items", len(results), len(batch)))
		}
		for i, it := range batch {
			it.result <- results[i]
		}
		done = len(batch)
	}
}

// crowded reports whether the last batch was one of several items. Then more
// are likely to come from callers that can run now, those whom a commit has
// just answered among them: letting them run first costs nothing if there are
// none, and else saves most of them from waiting for a batch of the quickest.
func (c *Committer[In, Out]) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last > 1
}

// take removes the next batch from the queue, for a flusher that has just done
// so many items. Without one it gives the flusher's place back, under the same
// lock, so that no item is overlooked: either the queue is empty, or another
// flusher is under way and will come for it.
func (c *Committer[In, Out]) take(done int) []*item[In, Out] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay -= done
	if len(c.queue) == 0 || c.underWay >= c.config.Spread {
		c.flushing--
		return nil
	}
	n, weight := 0, 0
	for n < len(c.queue) && n < c.config.MaxItems {
		weight += c.queue[n].weight
		if n > 0 && weight > c.config.MaxWeight {
			break
		}
		n++
	}
	batch := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	c.underWay += n
	c.last = n
	return batch
}
