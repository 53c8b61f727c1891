package sealed

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/probate-dev/probate/records"
)

// A stored value that begins with magic is an envelope: a byte that says what
// is in it, and that. Any other value is open, and is all there is.
//
//	magic o value                              open; the value begins with magic
//	magic s length(key id) key id nonce text   sealed with XChaCha20-Poly1305
const (
	magic = "\x8bprobate-seal\r\n\x1a"

	kindOpen   = 'o'
	kindSealed = 's'
)

// overhead is the most that an envelope adds.
const overhead = len(magic) + 2 + maxKeyID + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

// enveloped reports whether a stored value is an envelope.
func enveloped(stored []byte) bool { return bytes.HasPrefix(stored, []byte(magic)) }

// bond is what a sealed value belongs to. It is authenticated with it.
type bond struct {
	purpose purpose
	id      records.ID
	epoch   int64 // of the finalizing fence; 0 with anything else
}

// purpose is what a value is, as one byte of the bond.
type purpose byte

const (
	purposeBody     purpose = 'b'
	purposeRequest  purpose = 'r'
	purposeCallback purpose = 'c'
)

func (p purpose) String() string {
	switch p {
	case purposeBody:
		return "body"
	case purposeCallback:
		return "callback"
	case purposeRequest:
	}
	return "request"
}

// bind is the data that is authenticated beside the text: the envelope's
// header and the bond. The header tells its own length, the rest is fixed.
func (b bond) bind(header []byte) []byte {
	bound := make([]byte, 0, len(header)+1+len(b.id)+8)
	bound = append(bound, header...)
	bound = append(bound, byte(b.purpose))
	bound = append(bound, b.id[:]...)
	return binary.BigEndian.AppendUint64(bound, uint64(b.epoch))
}

// nonce fills in the nonce of a value that is sealed with a key.
type nonce func(out []byte, k key, bound, value []byte)

// randomNonce needs no counting: at 24 bytes, two will not be the same.
func randomNonce(out []byte, _ key, _, _ []byte) {
	rand.Read(out) // never fails: crypto/rand ends the program instead
}

// derivedNonce is the same for the same value in the same place, and another
// for anything else: it seals a repeated call to the same bytes.
func derivedNonce(out []byte, k key, bound, value []byte) {
	h := hmac.New(sha256.New, k.derive)
	h.Write(bound) // of one length for one key
	h.Write(value)
	copy(out, h.Sum(nil))
}

// sealed is a value as it is stored. Nil stays nil.
func (k Keys) sealed(b bond, value []byte, n nonce) []byte {
	if value == nil {
		return nil
	}
	if !k.Seals() {
		if !enveloped(value) {
			return value
		}
		open := make([]byte, 0, len(magic)+1+len(value))
		open = append(append(open, magic...), kindOpen)
		return append(open, value...)
	}
	first := k.ring[0]
	sealed := make([]byte, 0, overhead+len(value))
	sealed = append(sealed, magic...)
	sealed = append(sealed, kindSealed, byte(len(first.id)))
	sealed = append(sealed, first.id...)
	bound := b.bind(sealed)
	header := sealed[:len(sealed)+chacha20poly1305.NonceSizeX]
	nonce := header[len(sealed):]
	n(nonce, first, bound, value)
	return first.aead.Seal(header, nonce, value, bound)
}

// Why a value could not be opened.
var (
	errNoKeys     = errors.New("it is sealed, and there are no keys here")
	errUnknownKey = errors.New("there is no such key here")
	errMalformed  = errors.New("it is not the form of a sealed value")
	errAltered    = errors.New("it was altered, belongs elsewhere, or another key has this id")
)

// open is a value as it was given to be stored. What is open already is
// returned as it is.
func (k Keys) open(b bond, stored []byte) ([]byte, error) {
	rest, is := bytes.CutPrefix(stored, []byte(magic))
	if !is {
		return stored, nil
	}
	if len(rest) == 0 {
		return nil, errMalformed
	}
	switch kind, rest := rest[0], rest[1:]; kind {
	case kindOpen:
		if !bytes.HasPrefix(rest, []byte(magic)) { // it had no need to be marked
			return nil, fmt.Errorf("%w: an open value", errMalformed)
		}
		return rest, nil
	case kindSealed:
		return k.unseal(b, stored[:len(magic)+1], rest)
	default:
		return nil, fmt.Errorf("%w: kind %q", errMalformed, kind)
	}
}

// unseal opens what stands behind the kind.
func (k Keys) unseal(b bond, before, rest []byte) ([]byte, error) {
	if len(rest) == 0 || len(rest) < 1+int(rest[0])+chacha20poly1305.NonceSizeX+chacha20poly1305.Overhead {
		return nil, fmt.Errorf("%w: cut short", errMalformed)
	}
	id, rest := rest[1:1+rest[0]], rest[1+rest[0]:]
	if !validKeyID(string(id)) {
		return nil, fmt.Errorf("%w: key id", errMalformed)
	}
	one, known := k.find(id)
	switch {
	case len(k.ring) == 0:
		return nil, fmt.Errorf("key %s: %w", id, errNoKeys)
	case !known:
		return nil, fmt.Errorf("key %s: %w", id, errUnknownKey)
	}
	header := before[: len(before)+1+len(id) : len(before)+1+len(id)]
	nonce, text := rest[:chacha20poly1305.NonceSizeX], rest[chacha20poly1305.NonceSizeX:]
	// What a store returns may be shared by several callers, so it is opened
	// into memory of its own.
	value, err := one.aead.Open(make([]byte, 0, len(text)), nonce, text, b.bind(header))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", id, errAltered)
	}
	return value, nil
}
