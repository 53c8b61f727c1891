package records

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// Domain tags open every hash, so that a hash of one kind can never be taken
// for a hash of another.
const (
	idDomain          = "probate/record/v1"
	fingerprintDomain = "probate/fingerprint/v1"
)

// Key is what a client means by "the same request". Two principals, or two
// realms, never share a record, whatever their keys.
type Key struct {
	Realm     string // tenant or other scope, as bytes
	Principal string // who asks, as bytes; it is hashed and never stored
	Key       string // the Idempotency-Key, as bytes
}

// ID is the record's primary key and its only name on the wire.
func (k Key) ID() ID { return ID(hashParts(idDomain, k.Realm, k.Principal, k.Key)) }

// ID names a record: SHA-256 over the length-framed realm, principal and key.
type ID [sha256.Size]byte

// String is the wire form: 64 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText is the wire form, for JSON and structured logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Compare orders ids by their bytes, the order in which stores lock rows.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// ParseID reads the wire form. Anything else, upper case included, is an
// [InvalidError].
func ParseID(s string) (ID, error) {
	var id ID
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(id) && hex.EncodeToString(b) == s {
		copy(id[:], b)
		return id, nil
	}
	return ID{}, &InvalidError{Field: "record id", Reason: "want 64 lower-case hexadecimal digits"}
}

// Fingerprint identifies what was asked under a key.
type Fingerprint [sha256.Size]byte

// FingerprintOf hashes the parts of a request, each framed by its length.
func FingerprintOf(parts ...string) Fingerprint {
	return Fingerprint(hashParts(fingerprintDomain, parts...))
}

// hashParts is SHA-256 over the domain and the parts, each preceded by its
// length as a big-endian uint64.
func hashParts(domain string, parts ...string) [sha256.Size]byte {
	size := 8 + len(domain)
	for _, p := range parts {
		size += 8 + len(p)
	}
	framed := make([]byte, 0, size)
	framed = appendFramed(framed, domain)
	for _, p := range parts {
		framed = appendFramed(framed, p)
	}
	return sha256.Sum256(framed)
}

func appendFramed(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}

// Token is set by every claim and take-over. A caller that lost the reply
// recognises its own row by it.
type Token [16]byte

// NewToken returns 128 random bits.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never fails: crypto/rand ends the program instead
	return t
}

// Fence is the right to write a record: this executor, at this epoch. Both
// must still stand in the row for a write to land.
type Fence struct {
	Executor ExecutorID
	Epoch    int64 // at a first claim the database's clock in microseconds, then +1
}

func (f Fence) String() string { return fmt.Sprintf("%s@%d", f.Executor, f.Epoch) }

// MarshalText is String, for structured logs.
func (f Fence) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Record is one idempotent operation.
type Record struct {
	ID          ID
	Realm       string // bytes, as all four below
	Key         string
	Operation   string
	Resource    string
	Fingerprint Fingerprint

	State       State
	Executor    ExecutorID // who executes it, or did last
	ExecutorURL string     // where to ask, copied from the executor's row by the claim
	Epoch       int64
	Attempt     Token
	Takeovers   int // executions begun after a take-over

	Request  []byte    // stored request, where work is repeatable without the client; nil: none
	Response *Response // what to replay; nil unless finalized

	CreatedAt   time.Time // of the current claim's first reserve, database clock
	FinalizedAt time.Time // when it left in_progress; zero while in progress
	ExpiresAt   time.Time // end of retention, grace not included; zero while in progress
}

// Fence is the fence under which the record's current executor may write it.
func (r Record) Fence() Fence { return Fence{Executor: r.Executor, Epoch: r.Epoch} }

// Response is what a replay returns, byte for byte.
type Response struct {
	Status  int      // HTTP status, 100 to 599
	Headers []Header // in order, repeated names kept
	Body    []byte   // nil: not kept (a tombstone); empty but not nil: an empty body
}
