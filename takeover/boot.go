package takeover

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
)

// boot is one executor of this process: its identity, its lease, and what of
// it has ended. A process has one at a time; a new one follows only after a
// fence, when everything of the old one has returned.
type boot struct {
	id    records.ExecutorID
	key   ed25519.PrivateKey
	lease *lease

	beats    atomic.Int64  // of its own, as last acknowledged
	kicked   chan struct{} // capacity 1: beat now, work waits for it
	landed   chan struct{} // capacity 1: a heartbeat landed, the fleet is to be read
	fenced   chan struct{} // closed when the store says it is terminal
	fence    sync.Once
	ready    atomic.Bool // it was reached at its URL: before that it claims nothing
	draining atomic.Bool
	attested atomic.Bool // a peer has reached it at its URL
}

func newBoot(trust Trust) *boot {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return &boot{
		id:     records.ExecutorID(uuid.New()),
		key:    key,
		lease:  newLease(trust),
		kicked: make(chan struct{}, 1),
		landed: make(chan struct{}, 1),
		fenced: make(chan struct{}),
	}
}

// kick asks for a heartbeat at once.
func (b *boot) kick() { signal(b.kicked) }

// signal leaves word in a channel of capacity 1, if there is none yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// declaredDead ends everything under the boot's lease. The fence decides what
// results may still be stored.
func (b *boot) declaredDead() {
	b.fence.Do(func() {
		b.lease.end(ErrExecutorFenced)
		close(b.fenced)
	})
}

// mayClaim reports whether new records may be claimed under the boot.
func (b *boot) mayClaim() bool { return b.ready.Load() && !b.draining.Load() && b.lease.held() }

// awaitStart returns the context in which work may begin now.
func (b *boot) awaitStart(ctx context.Context, patience time.Duration) (context.Context, error) {
	return b.lease.awaitStart(ctx, patience, b.kick)
}

func (b *boot) publicKey() ed25519.PublicKey { return b.key.Public().(ed25519.PublicKey) }
