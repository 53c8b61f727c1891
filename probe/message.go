package probe

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/probate-dev/probate/records"
)

// Version is the version of the messages. A message of another version is
// not read.
const Version = 1

// MaxMessage is the size of the largest message, in bytes.
const MaxMessage = 4 << 10

// Kind says what a message is about. It is under the signature, so that a
// statement of one kind is never taken for one of another.
type Kind string

const (
	// KindRecord: an executor about a record.
	KindRecord Kind = "record"
	// KindWitness: an executor about another executor.
	KindWitness Kind = "witness"
)

// Answer is what an executor says about a record.
type Answer string

const (
	// AnswerRunning: the record is in the running set.
	AnswerRunning Answer = "running"
	// AnswerNotRunning: the running set has no entry for it, at no epoch.
	AnswerNotRunning Answer = "not_running"
	// AnswerNotMe: the question was meant for another executor.
	AnswerNotMe Answer = "not_me"
)

// Errors of messages, to branch on with [errors.Is].
var (
	// ErrMalformed: not a message, or not one of the kind that was expected.
	ErrMalformed = errors.New("malformed message")
	// ErrVersion: a message of a version that this binary does not know.
	ErrVersion = errors.New("unknown message version")
	// ErrSignature: the signature does not fit the payload and the key.
	ErrSignature = errors.New("bad signature")
	// ErrUnknownSigner: no key is known for who claims to have signed; see
	// [UnknownSignerError].
	ErrUnknownSigner = errors.New("unknown signer")
)

// UnknownSignerError carries who claims to have signed. It matches
// [ErrUnknownSigner].
type UnknownSignerError struct{ Claimed records.ExecutorID }

func (e *UnknownSignerError) Error() string {
	return fmt.Sprintf("unknown signer: executor %s", e.Claimed)
}

// Is makes every UnknownSignerError match ErrUnknownSigner.
func (e *UnknownSignerError) Is(target error) bool { return target == ErrUnknownSigner }

// Nonce makes an answer good for one question.
type Nonce [16]byte

// NewNonce returns 128 random bits.
func NewNonce() Nonce {
	var n Nonce
	rand.Read(n[:]) // never fails: crypto/rand ends the program instead
	return n
}

// String is the wire form: 32 lower-case hexadecimal digits.
func (n Nonce) String() string { return hex.EncodeToString(n[:]) }

// ParseNonce reads the wire form and nothing else.
func ParseNonce(s string) (Nonce, error) {
	var n Nonce
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(n) && hex.EncodeToString(b) == s {
		copy(n[:], b)
		return n, nil
	}
	return Nonce{}, fmt.Errorf("%w: nonce: want 32 lower-case hexadecimal digits", ErrMalformed)
}

// Statement is what an executor signs.
type Statement struct {
	Kind     Kind
	Cluster  string
	Executor records.ExecutorID // who signs
	Slot     string             // of who signs
	Record   records.ID         // asked about; zero for a witness
	Epoch    int64              // as asked; the answer does not depend on it
	Nonce    Nonce              // of the question

	// Of KindRecord.
	Answer Answer
	// Proxied: the question came with headers that only a proxy adds.
	Proxied bool

	// Of KindWitness.
	Suspect      records.ExecutorID
	Saw          Verdict
	SuspectAlive bool // the suspect signed an answer for the witness
}

// envelope is the message on the wire.
type envelope struct {
	Payload []byte `json:"payload"`
	Sig     []byte `json:"sig"` // ed25519 over the bytes of the payload
}

// payload is a Statement on the wire.
type payload struct {
	Version  int    `json:"version"`
	Kind     Kind   `json:"kind"`
	Cluster  string `json:"cluster"`
	Executor string `json:"executor"`
	Slot     string `json:"slot"`
	Record   string `json:"record"`
	Epoch    int64  `json:"epoch"`
	Nonce    string `json:"nonce"`
	Answer   string `json:"answer"`
	Proxied  bool   `json:"proxied,omitempty"`
	Suspect  string `json:"suspect,omitempty"`
	Alive    bool   `json:"alive,omitempty"`
}

// Sign writes the statement as a message.
func Sign(key ed25519.PrivateKey, s Statement) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("sign message: no key")
	}
	p := payload{
		Version: Version, Kind: s.Kind, Cluster: s.Cluster, Executor: s.Executor.String(), Slot: s.Slot,
		Record: s.Record.String(), Epoch: s.Epoch, Nonce: s.Nonce.String(),
		Answer: string(s.Answer), Proxied: s.Proxied,
	}
	if s.Kind == KindWitness {
		p.Answer, p.Suspect, p.Alive = s.Saw.String(), s.Suspect.String(), s.SuspectAlive
	}
	if _, err := p.statement(); err != nil {
		return nil, fmt.Errorf("sign message: %w", err)
	}
	inner, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("sign message: %w", err)
	}
	b, err := json.Marshal(envelope{Payload: inner, Sig: ed25519.Sign(key, inner)})
	if err != nil {
		return nil, fmt.Errorf("sign message: %w", err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("sign message: %w: %d bytes", ErrMalformed, len(b))
	}
	return b, nil
}

// Open reads a message of the given kind and verifies it with the key that
// keyOf knows for who claims to have signed it. Nothing of a message is
// returned unless its signature holds. Errors: [ErrMalformed], [ErrVersion],
// [ErrSignature], [ErrUnknownSigner].
func Open(message []byte, kind Kind, keyOf func(records.ExecutorID) (ed25519.PublicKey, bool)) (Statement, error) {
	if len(message) > MaxMessage {
		return Statement{}, fmt.Errorf("%w: over %d bytes", ErrMalformed, MaxMessage)
	}
	var e envelope
	if err := decodeStrictly(message, &e); err != nil {
		return Statement{}, err
	}
	// The version comes first: a later one may look quite different.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(e.Payload, &head); err != nil {
		return Statement{}, fmt.Errorf("%w: payload: %w", ErrMalformed, err)
	}
	if head.Version != Version {
		return Statement{}, fmt.Errorf("%w: %d", ErrVersion, head.Version)
	}
	var p payload
	if err := decodeStrictly(e.Payload, &p); err != nil {
		return Statement{}, err
	}
	s, err := p.statement()
	if err != nil {
		return Statement{}, err
	}
	key, known := keyOf(s.Executor)
	switch {
	case !known || len(key) != ed25519.PublicKeySize:
		return Statement{}, &UnknownSignerError{Claimed: s.Executor}
	case !ed25519.Verify(key, e.Payload, e.Sig):
		return Statement{}, ErrSignature
	case s.Kind != kind:
		return Statement{}, fmt.Errorf("%w: kind %q, want %q", ErrMalformed, s.Kind, kind)
	}
	return s, nil
}

// statement checks the payload and gives its fields their types.
func (p payload) statement() (Statement, error) {
	s := Statement{
		Kind: p.Kind, Cluster: p.Cluster, Slot: p.Slot, Epoch: p.Epoch, Proxied: p.Proxied,
		SuspectAlive: p.Alive,
	}
	var errs [4]error
	s.Executor, errs[0] = records.ParseExecutorID(p.Executor)
	s.Record, errs[1] = records.ParseID(p.Record)
	s.Nonce, errs[2] = ParseNonce(p.Nonce)
	known := false
	switch p.Kind {
	case KindRecord:
		s.Answer = Answer(p.Answer)
		known = s.Answer == AnswerRunning || s.Answer == AnswerNotRunning || s.Answer == AnswerNotMe
		known = known && p.Suspect == "" && !p.Alive
	case KindWitness:
		s.Saw, known = parseVerdict(p.Answer)
		known = known && !p.Proxied
		s.Suspect, errs[3] = records.ParseExecutorID(p.Suspect)
	default:
		return Statement{}, fmt.Errorf("%w: kind %q", ErrMalformed, p.Kind)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Statement{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !known {
		return Statement{}, fmt.Errorf("%w: a %s message cannot answer %q", ErrMalformed, p.Kind, p.Answer)
	}
	return s, nil
}

// decodeStrictly reads one JSON value, no unknown fields, nothing after it.
func decodeStrictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: trailing data", ErrMalformed)
	}
	return nil
}
