package probe

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"

	"github.com/probate-dev/probate/records"
)

// judgeRecord reads an answer to a question about a record of a.
func (c *Client) judgeRecord(reply []byte, a records.Executor, q question) Observation {
	s, o := c.open(reply, KindRecord, a, q)
	switch {
	case o.Err != nil:
	case s.Executor != a.ID:
		o.Verdict, o.Err = c.other(a, s.Executor)
	case s.Proxied:
		o.Err = fmt.Errorf("%w: it passed through a proxy", ErrNotOurs)
	case s.Answer == AnswerRunning:
		o.Verdict = Running
	case s.Answer == AnswerNotRunning:
		o.Verdict = NotRunning
	default:
		o.Err = fmt.Errorf("%w: answer %q", ErrNotOurs, s.Answer)
	}
	return o
}

// judgeWitness reads what w said about a suspect.
func (c *Client) judgeWitness(reply []byte, w records.Executor, q question) Testimony {
	s, o := c.open(reply, KindWitness, w, q)
	switch {
	case o.Err != nil:
	case s.Executor != w.ID:
		o.Verdict, o.Err = c.other(w, s.Executor)
	case s.Suspect != q.suspect:
		o.Signer, o.Err = records.ExecutorID{}, fmt.Errorf("%w: it is about executor %s", ErrNotOurs, s.Suspect)
	default:
		o.Verdict = NotRunning // of the zero record, which nobody runs
		return Testimony{Heard: o, Saw: s.Saw, SuspectAlive: s.SuspectAlive}
	}
	return Testimony{Heard: o}
}

// open verifies a message and that it answers q. On failure the observation
// carries the error, and no signer: a replay is nobody's word.
func (c *Client) open(reply []byte, kind Kind, a records.Executor, q question) (Statement, Observation) {
	o := Observation{Asked: a.ID}
	var slot string
	s, err := Open(reply, kind, func(id records.ExecutorID) (ed25519.PublicKey, bool) {
		e, known := a, true
		if id != a.ID {
			e, known = c.cfg.Lookup(id)
		}
		slot = e.Slot
		return e.PublicKey, known && e.ID == id && c.pins.agree(id, e.PublicKey)
	})
	if u, ok := errors.AsType[*UnknownSignerError](err); ok {
		o.Claimed = u.Claimed
	}
	switch {
	case err != nil:
		o.Err = fmt.Errorf("%w: %w", ErrNotOurs, err)
	case s.Cluster != c.cfg.Cluster:
		o.Err = fmt.Errorf("%w: cluster %q", ErrNotOurs, s.Cluster)
	case s.Slot != slot:
		o.Err = fmt.Errorf("%w: slot %q", ErrNotOurs, s.Slot)
	case s.Nonce != q.nonce || s.Record != q.record || s.Epoch != q.epoch:
		o.Err = fmt.Errorf("%w: it answers another question", ErrNotOurs)
	default:
		o.Signer = s.Executor
	}
	return s, o
}

// other is the verdict when somebody else signed: a newer boot of a's slot,
// or a stranger.
//
// The newer of two boots of a slot beat last. The older one was fenced by the
// registration of the newer and has not beaten since; so an old boot that
// still answers at its successor's address is a stranger, not a replacement.
func (c *Client) other(a records.Executor, signer records.ExecutorID) (Verdict, error) {
	err := fmt.Errorf("%w: executor %s signed it", ErrNotOurs, signer)
	e, known := c.cfg.Lookup(signer)
	if known && e.Slot == a.Slot && !e.State.Terminal() && e.HeartbeatAt.After(a.HeartbeatAt) {
		return Replaced, err
	}
	return Stranger, err
}

// maxPins bounds how many executors' keys are remembered.
const maxPins = 4096

// pins remember the key under which an executor was first seen. A boot has
// one key for life: another one for the same id is an attack or corruption.
type pins struct {
	mu    sync.Mutex
	keys  map[records.ExecutorID][ed25519.PublicKeySize]byte
	order []records.ExecutorID // oldest first
}

// agree reports whether key is the executor's, pinning it at first sight.
func (p *pins) agree(id records.ExecutorID, key ed25519.PublicKey) bool {
	if len(key) != ed25519.PublicKeySize {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if pinned, ok := p.keys[id]; ok {
		return pinned == [ed25519.PublicKeySize]byte(key)
	}
	if p.keys == nil {
		p.keys = make(map[records.ExecutorID][ed25519.PublicKeySize]byte)
	}
	if len(p.order) >= maxPins {
		delete(p.keys, p.order[0])
		p.order = p.order[1:]
	}
	p.keys[id] = [ed25519.PublicKeySize]byte(key)
	p.order = append(p.order, id)
	return true
}
