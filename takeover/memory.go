package takeover

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/probate-dev/probate/records"
)

// memory keeps finalized records that were lately read from the store or
// written to it, so that a replay need not ask. Such a record does not change
// before it expires, but an operator may erase it; one that will expire soon is
// not kept, nor is any kept for long. Each heartbeat says how often something
// was erased so far; when that has changed, all that was read before is dropped.
type memory struct {
	bytes int // bound; 0: keeps nothing

	// erasures is what the last heartbeat said. Who reads a record notes it
	// before, so that what he read before an erasure is not kept after it.
	erasures atomic.Int64

	mu    sync.Mutex
	items map[records.ID]*list.Element
	order list.List // of remembered, latest used first
	size  int
}

type remembered struct {
	record records.Record
	until  time.Time
	size   int
}

const (
	// rememberFor bounds the age of what is replayed from memory.
	rememberFor = 30 * time.Second
	// expiryGuard is more than clocks may differ by before a record counts as
	// expired here earlier than there; the store's grace is longer.
	expiryGuard = time.Minute
	// rowBytes is what a row costs besides its bytes.
	rowBytes = 512
)

// keep remembers a finalized record that was read when that many erasures were
// known of.
func (m *memory) keep(r records.Record, erasures int64) {
	if r.State != records.Finalized || r.Response == nil {
		return
	}
	now := time.Now()
	until := now.Add(rememberFor)
	if r.ExpiresAt.Before(until.Add(expiryGuard)) {
		return
	}
	it := &remembered{record: r, until: until, size: sizeOf(r)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if it.size > m.bytes/8 || m.erasures.Load() != erasures {
		return
	}
	if old, ok := m.items[r.ID]; ok {
		m.forget(old)
	}
	if m.items == nil {
		m.items = map[records.ID]*list.Element{}
	}
	m.items[r.ID] = m.order.PushFront(it)
	m.size += it.size
	for m.size > m.bytes || m.stale(m.order.Back(), now) {
		m.forget(m.order.Back())
	}
}

// stale reports whether an element is too old to be replayed. Those used least
// lately are dropped when they are, so that keys that nobody repeats any more
// do not pile up to the bound.
func (*memory) stale(e *list.Element, now time.Time) bool {
	return now.After(e.Value.(*remembered).until)
}

// heard is told how often something was erased, and drops everything if that is
// news.
func (m *memory) heard(erasures int64) {
	if m.erasures.Load() == erasures {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erasures.Store(erasures)
	m.items, m.size = nil, 0
	m.order.Init()
}

// recall returns a finalized record that is still remembered.
func (m *memory) recall(id records.ID) (records.Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.items[id]
	if !ok {
		return records.Record{}, false
	}
	if m.stale(e, time.Now()) {
		m.forget(e)
		return records.Record{}, false
	}
	m.order.MoveToFront(e)
	return e.Value.(*remembered).record, true
}

func (m *memory) forget(e *list.Element) {
	it := m.order.Remove(e).(*remembered)
	delete(m.items, it.record.ID)
	m.size -= it.size
}

func sizeOf(r records.Record) int {
	n := rowBytes + len(r.Realm) + len(r.Key) + len(r.Operation) + len(r.Resource) + len(r.Request) + len(r.Response.Body)
	for _, h := range r.Response.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}
