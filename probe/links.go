package probe

import (
	"context"
	"net/http"
	"sync"
)

// link is one shared connection, or the dial that will make it.
type link struct {
	key     string
	ready   chan struct{} // closed once the fields below are set
	conn    *http.ClientConn
	failure *failure
}

// dead reports whether the link was dialled and its connection is no more.
func (l *link) dead() bool {
	select {
	case <-l.ready:
		return l.conn == nil || l.conn.Err() != nil
	default:
		return false
	}
}

// links are the shared connections of a client, by scheme and address. The
// zero value is ready.
type links struct {
	mu    sync.Mutex
	byURL map[string]*link
	old   []*link // replaced, but perhaps with answers still to come
}

// link returns the shared connection of an address, dialling it if there is
// none. All who ask while it is being dialled wait for the one dial.
func (c *Client) link(ctx context.Context, scheme, hostport string) (*link, *failure) {
	l, added := c.links.find(scheme + "://" + hostport)
	if added {
		// The dial belongs to all who wait for it, not to the first of them.
		// The caller is itself counted, so the client cannot close meanwhile.
		c.calls.Go(func() { //nolint:contextcheck // it outlives the one call that began it
			ctx, cancel := context.WithTimeout(c.life, c.cfg.Overall)
			defer cancel()
			l.conn, _, l.failure = c.connect(ctx, c.shared, scheme, hostport)
			close(l.ready)
		})
	}
	select {
	case <-l.ready:
		return l, l.failure
	case <-ctx.Done():
		return nil, failed(Unknown, ErrNoConnection, context.Cause(ctx))
	}
}

// find returns the live link of a key, or adds one that the caller must dial.
func (w *links) find(key string) (l *link, added bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.byURL[key]; ok {
		if !l.dead() {
			return l, false
		}
		w.retire(l)
	}
	l = &link{key: key, ready: make(chan struct{})}
	if w.byURL == nil {
		w.byURL = make(map[string]*link)
	}
	w.byURL[key] = l
	return l, true
}

// drop makes sure that nobody new finds the link.
func (w *links) drop(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byURL[l.key] == l {
		w.retire(l)
	}
}

// retire sets a link aside until its connection has ended. The caller holds
// the lock.
func (w *links) retire(l *link) {
	delete(w.byURL, l.key)
	kept := w.old[:0]
	for _, o := range append(w.old, l) {
		if !o.dead() {
			kept = append(kept, o)
		}
	}
	w.old = kept
}

// closeAll closes every connection. Nobody may be using one.
func (w *links) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.byURL {
		w.old = append(w.old, l)
	}
	clear(w.byURL)
	for _, l := range w.old {
		if l.conn != nil {
			_ = l.conn.Close()
		}
	}
	w.old = nil
}
