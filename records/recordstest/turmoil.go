package recordstest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/probate-dev/probate/records"
)

// turmoil lets many actors on three nodes do anything to a few keys, while
// executors die and are replaced and expired records are purged. Then it looks
// at what they were told.
func (f *fixture) turmoil(actors, steps int) {
	f.Helper()
	seed := rand.Uint64()
	nodes := f.nodes(3)
	keys := make([]records.Reservation, 6)
	for i := range keys {
		keys[i] = reservation(records.ExecutorID{})
	}
	h := &history{owners: make(map[claimName]owner), ends: make(map[claimName]string)}
	var wg sync.WaitGroup
	for i := range actors {
		a := &actor{
			f: f, store: nodes[i%len(nodes)], keys: keys, history: h,
			random: rand.New(rand.NewPCG(seed, uint64(i))),
			known:  make(map[records.ID]records.Record), newest: make(map[records.ID]int64),
			self: f.active(records.Registration{}).ID,
		}
		wg.Go(func() {
			for range steps {
				a.step()
			}
		})
	}
	wg.Wait()
	for fault := range h.faults() {
		f.Error(fault)
	}
	if f.Failed() {
		f.Logf("seed %d", seed)
	}
}

// history is what the actors of a race were told.
type history struct {
	mu     sync.Mutex
	owners map[claimName]owner
	ends   map[claimName]string
	wrong  []string
}

type claimName struct {
	id    records.ID
	epoch int64
}

type owner struct {
	executor records.ExecutorID
	attempt  records.Token
}

// claimed notes who was granted an epoch. A second one is a fault.
func (h *history) claimed(r records.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, who := claimName{r.ID, r.Epoch}, owner{r.Executor, r.Attempt}
	if first, ok := h.owners[name]; ok && first != who {
		h.wrong = append(h.wrong, fmt.Sprintf("epoch %d was granted to %s and to %s", r.Epoch, first.executor, who.executor))
	}
	h.owners[name] = who
}

// ended notes how a claim ended. A second, different end is a fault.
func (h *history) ended(id records.ID, f records.Fence, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := claimName{id, f.Epoch}
	how = f.Executor.String() + " " + how
	if first, ok := h.ends[name]; ok && first != how {
		h.wrong = append(h.wrong, fmt.Sprintf("epoch %d ended twice: %s, %s", f.Epoch, first, how))
	}
	h.ends[name] = how
}

func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

// faults yields what was wrong on the way, and claims that ended without ever
// having been granted.
func (h *history) faults() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, fault := range h.wrong {
			if !yield(fault) {
				return
			}
		}
		for name, how := range h.ends {
			if _, ok := h.owners[name]; !ok && !yield(fmt.Sprintf("epoch %d ended (%s) and was granted to nobody", name.epoch, how)) {
				return
			}
		}
	}
}

// actor is one of those who do anything.
type actor struct {
	f       *fixture
	store   records.Store
	keys    []records.Reservation
	history *history
	random  *rand.Rand
	self    records.ExecutorID
	known   map[records.ID]records.Record // as it last saw them, so perhaps outdated
	newest  map[records.ID]int64
}

func (a *actor) step() {
	r := a.keys[a.random.IntN(len(a.keys))]
	known, seen := a.known[r.ID]
	switch n := a.random.IntN(20); {
	case n < 6 || !seen:
		a.reserve(r)
	case n < 12:
		a.end(known)
	case n < 15:
		a.takeOver(known)
	case n < 17:
		a.claimUnknown(known)
	case n < 18:
		a.look(r.ID)
	case n < 19:
		a.expect(errOf(a.store.Purge(a.f.Context(), 3)))
	default:
		a.die()
	}
}

// expect allows an error only if it is one of the refusals named.
func (a *actor) expect(err error, refusals ...error) {
	if err != nil && !isAny(err, refusals...) {
		a.history.fault("unexpected error: %v", err)
	}
}

// saw notes a record that was read. Epochs never fall before anybody's eyes.
func (a *actor) saw(r records.Record) {
	if r.Epoch < a.newest[r.ID] {
		a.history.fault("epoch %d seen after epoch %d", r.Epoch, a.newest[r.ID])
	}
	a.newest[r.ID] = r.Epoch
	a.known[r.ID] = r
}

func (a *actor) reserve(r records.Reservation) {
	got, err := a.store.Reserve(a.f.Context(), again(r, a.self))
	a.expect(err, records.ErrNotActive)
	if err != nil {
		return
	}
	a.saw(got.Record)
	if got.Owned {
		a.history.claimed(got.Record)
	}
}

func (a *actor) end(r records.Record) {
	e := ends[a.random.IntN(len(ends))]
	var err error
	if e.state == records.Finalized && a.random.IntN(2) == 0 {
		err = a.store.Finalize(a.f.Context(), r.ID, r.Fence(), outcome("forgotten at once", 0))
	} else {
		err = e.write(a.f.Context(), a.store, r.ID, r.Fence())
	}
	a.expect(err, records.ErrFenced)
	if err == nil {
		a.history.ended(r.ID, r.Fence(), e.name)
	}
}

func (a *actor) takeOver(r records.Record) {
	t := takeOver(r, a.self)
	t.SignedNotRunning = a.random.IntN(2) == 0
	got, err := a.store.TakeOver(a.f.Context(), t)
	a.expect(err, records.ErrFenced, records.ErrNotActive)
	if err != nil {
		return
	}
	if got.Epoch != r.Epoch+1 {
		a.history.fault("taken over at epoch %d from epoch %d", got.Epoch, r.Epoch)
	}
	a.saw(got)
	a.history.ended(r.ID, r.Fence(), fmt.Sprintf("taken over by %x", t.Attempt))
	a.history.claimed(got)
}

func (a *actor) claimUnknown(r records.Record) {
	got, err := a.store.ClaimUnknown(a.f.Context(), claimOf(r, a.self))
	a.expect(err, records.ErrFenced, records.ErrNotActive)
	if err == nil {
		a.saw(got)
		a.history.claimed(got)
	}
}

func (a *actor) look(id records.ID) {
	got, err := a.store.Load(a.f.Context(), id)
	a.expect(err, records.ErrNotFound)
	if err == nil {
		a.saw(got.Record)
	}
}

// die fences the actor's executor and comes back as another boot.
func (a *actor) die() {
	_, err := a.store.FenceByOperator(a.f.Context(), records.Condemnation{Executor: a.self, Actor: "turmoil", Reason: "test", Force: true})
	a.expect(err)
	e, err := a.store.Register(a.f.Context(), registration(records.Registration{}))
	a.expect(err)
	if err == nil {
		a.self = e.ID
	}
}
