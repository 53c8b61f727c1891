//go:build unix

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Ledger is a service behind the nodes. It books entries under keys, knows
// nothing of duplicates and counts what it was made to do.
//
//	POST /entries/{key}  books one; headers Probate-Epoch and Probate-Executor
//	GET  /entries/{key}  what came of it: applied, not_applied or pending; told
//	                     an epoch, it refuses smaller ones from then on
type Ledger struct {
	URL string

	mu      sync.Mutex
	keys    map[string]*account
	holds   []*Hold       // all there ever were
	changed chan struct{} // closed, and replaced, when a fence rises
}

// account is what the ledger knows under one key.
type account struct {
	fence   fence
	entries []Entry
	working int   // requests that may still book
	hold    *Hold // of the next request
	queries int
}

// fence is the highest epoch that was seen, and whose it is.
type fence struct {
	epoch    int64
	executor string
}

// Entry is one effect.
type Entry struct {
	Body     string
	Epoch    int64
	Executor string
}

// Where is a point in the ledger's work.
type Where int

const (
	// BeforeEffect: nothing is booked yet. A request that is held here is
	// refused once a greater epoch is known, and abandoned when its client's
	// connection ends.
	BeforeEffect Where = iota
	// AfterEffect: it is booked, and the client does not know.
	AfterEffect
)

// Hold holds requests until it is released.
type Hold struct {
	where   Where
	release chan struct{}
	once    sync.Once

	mu      sync.Mutex
	arrived int
}

// NewLedger starts a ledger.
func NewLedger(t testing.TB) *Ledger {
	l := &Ledger{keys: map[string]*account{}, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /entries/{key}", l.book)
	mux.HandleFunc("GET /entries/{key}", l.tell)
	s := httptest.NewServer(mux)
	l.URL = s.URL
	t.Cleanup(func() {
		l.releaseAll()
		s.CloseClientConnections()
		s.Close()
	})
	return l
}

// Hold holds the next request for each of the keys.
func (l *Ledger) Hold(where Where, keys ...string) *Hold {
	h := &Hold{where: where, release: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	for _, k := range keys {
		l.account(k).hold = h
	}
	return h
}

// Await waits until so many requests are held.
func (h *Hold) Await(t testing.TB, count int) {
	t.Helper()
	Await(t, fmt.Sprintf("%d requests reach the ledger", count), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.arrived >= count
	})
}

// Release lets go of all.
func (h *Hold) Release() { h.once.Do(func() { close(h.release) }) }

// Entries are the effects under a key.
func (l *Ledger) Entries(key string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.account(key).entries)
}

// Queries is how often it was asked what came of the key.
func (l *Ledger) Queries(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(key).queries
}

// account needs the lock.
func (l *Ledger) account(key string) *account {
	a := l.keys[key]
	if a == nil {
		a = &account{}
		l.keys[key] = a
	}
	return a
}

func (l *Ledger) releaseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		h.Release()
	}
}

// book is POST /entries/{key}.
func (l *Ledger) book(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	epoch, err := strconv.ParseInt(r.Header.Get("Probate-Epoch"), 10, 64)
	if err != nil {
		http.Error(w, "no epoch", http.StatusBadRequest)
		return
	}
	f := fence{epoch, r.Header.Get("Probate-Executor")}
	hold, ok := l.begin(key, f)
	if ok && hold.at(BeforeEffect) {
		ok = l.wait(r.Context(), hold, key, f)
	}
	entry, ok := l.finish(key, f, ok)
	if !ok {
		http.Error(w, "refused: a greater epoch is known, or nobody listens", http.StatusConflict)
		return
	}
	if hold.at(AfterEffect) {
		hold.arrive()
		<-hold.release
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(entry.Body))
}

// begin admits a request, unless a greater epoch is known.
func (l *Ledger) begin(key string, f fence) (*Hold, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(key)
	ok := l.admit(a, f)
	a.working++
	hold := a.hold
	a.hold = nil
	return hold, ok
}

// finish books the entry, if the request may still.
func (l *Ledger) finish(key string, f fence, ok bool) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(key)
	a.working--
	if !ok || !l.admit(a, f) {
		return Entry{}, false
	}
	e := Entry{Body: fmt.Sprintf("entry %d under %s", len(a.entries)+1, key), Epoch: f.epoch, Executor: f.executor}
	a.entries = append(a.entries, e)
	return e, true
}

// admit refuses smaller epochs, and equal ones of another executor. It needs
// the lock.
func (l *Ledger) admit(a *account, f fence) bool {
	switch {
	case f.epoch < a.fence.epoch:
		return false
	case f.epoch == a.fence.epoch:
		return f.executor == a.fence.executor
	}
	a.fence = f
	close(l.changed)
	l.changed = make(chan struct{})
	return true
}

// wait holds a request and reports whether it may go on.
func (l *Ledger) wait(ctx context.Context, h *Hold, key string, f fence) bool {
	h.arrive()
	for {
		l.mu.Lock()
		ok, changed := l.admit(l.account(key), f), l.changed
		l.mu.Unlock()
		if !ok {
			return false
		}
		select {
		case <-h.release:
			return true
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// tell is GET /entries/{key}.
func (l *Ledger) tell(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(r.PathValue("key"))
	a.queries++
	if epoch, err := strconv.ParseInt(r.Header.Get("Probate-Epoch"), 10, 64); err == nil {
		l.admit(a, fence{epoch, r.Header.Get("Probate-Executor")})
	}
	state, body := "not_applied", ""
	switch {
	case len(a.entries) > 0:
		state, body = "applied", a.entries[len(a.entries)-1].Body
	case a.working > 0:
		state = "pending"
	}
	w.Header().Set("Ledger-State", state)
	_, _ = w.Write([]byte(body))
}

func (h *Hold) at(where Where) bool { return h != nil && h.where == where }

func (h *Hold) arrive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrived++
}
