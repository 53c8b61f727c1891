package takeover

import (
	"sync"

	"github.com/probate-dev/probate/records"
)

// waiters bounds how many duplicates wait at once. One over a bound is not
// refused, it is answered at once as in progress.
type waiters struct {
	perKey, perRealm, perNode int

	mu     sync.Mutex
	keys   map[records.ID]int
	realms map[string]int
	total  int
}

// admit counts one more waiter, unless a bound is reached.
func (w *waiters) admit(id records.ID, realm string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= w.perNode || w.keys[id] >= w.perKey || w.realms[realm] >= w.perRealm {
		return false
	}
	if w.keys == nil {
		w.keys, w.realms = map[records.ID]int{}, map[string]int{}
	}
	w.total++
	w.keys[id]++
	w.realms[realm]++
	return true
}

func (w *waiters) dismiss(id records.ID, realm string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.keys[id]--; w.keys[id] == 0 {
		delete(w.keys, id)
	}
	if w.realms[realm]--; w.realms[realm] == 0 {
		delete(w.realms, realm)
	}
}

func (w *waiters) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

func (w *waiters) of(id records.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[id]
}
