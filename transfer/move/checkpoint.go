package move

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"fmt"
	"hash"
)

// Checkpoint is a copy that can be gone on with, by any process that reaches
// both ends. It marshals to JSON and holds no secret.
type Checkpoint struct {
	// Offset is how many bytes the sink durably holds.
	Offset int64 `json:"offset"`
	// Hash is the state of SHA-256 after Offset bytes.
	Hash []byte `json:"hash"`
	// Validator is the source's. Another one, and the copy begins at zero.
	Validator string `json:"validator,omitempty"`
	// Length is the source's. Negative: not known.
	Length int64 `json:"length"`
	// Token is the sink's.
	Token string `json:"token,omitempty"`
	// Landing is there once the bytes were about to get their final name.
	Landing *Landing `json:"landing,omitempty"`
}

// state marshals the state of a SHA-256.
func state(h hash.Hash) []byte {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		panic("move: SHA-256 without a state")
	}
	b, err := m.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("move: state of SHA-256: %v", err))
	}
	return b
}

// hasher returns a SHA-256 that goes on from c.
func (c *Checkpoint) hasher() (hash.Hash, error) {
	h := sha256.New()
	if c == nil || c.Offset == 0 {
		return h, nil
	}
	u, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		panic("move: SHA-256 without a state")
	}
	if err := u.UnmarshalBinary(c.Hash); err != nil {
		return nil, fmt.Errorf("read hash of checkpoint: %w", err)
	}
	return h, nil
}

// holds reports whether h, having seen Offset bytes, saw the ones of c.
func (c *Checkpoint) holds(h hash.Hash) bool { return bytes.Equal(state(h), c.Hash) }
