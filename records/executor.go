package records

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// ExecutorID is the identity of one boot of one process: a random UUID
// (RFC 9562), never derived from a host name.
type ExecutorID [16]byte

// String is the UUID's text form, lower case.
func (id ExecutorID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// MarshalText is the text form, for JSON and structured logs.
func (id ExecutorID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseExecutorID reads the text form. Anything else is an [InvalidError].
func ParseExecutorID(s string) (ExecutorID, error) {
	var id ExecutorID
	if b, err := hex.DecodeString(strings.ReplaceAll(s, "-", "")); err == nil && len(b) == len(id) {
		copy(id[:], b)
		if id.String() == strings.ToLower(s) {
			return id, nil
		}
	}
	return ExecutorID{}, &InvalidError{Field: "executor id", Reason: "want a UUID such as 6ba7b810-9dad-41d1-80b4-00c04fd430c8"}
}

// Policy says what may fence an executor. A fence reads the policy in the
// suspect's row, never the observer's configuration.
type Policy string

const (
	// PolicyLease: only an expired lease may fence it. The zero Policy is
	// treated as this one, the stricter.
	PolicyLease Policy = "lease"
	// PolicyProbe: a confirmed failed probe may fence it too, unless a
	// heartbeat landed after the first failure.
	PolicyProbe Policy = "probe"
)

// Executor is one boot as the store knows it.
type Executor struct {
	ID        ExecutorID
	Slot      string // the stable place it runs in; at most one active or draining executor a slot
	URL       string // base URL of its probe endpoint: scheme, host, port
	PublicKey ed25519.PublicKey
	Policy    Policy
	State     ExecutorState

	Beat         int64 // heartbeats so far
	HeartbeatAt  time.Time
	HeartbeatAge time.Duration // by the database's clock when the row was read; negative if that clock stepped back
	LeaseTTL     time.Duration // how long one heartbeat keeps it alive
	LeaseSince   time.Time     // start of its unbroken run of heartbeats

	AttestedAt  time.Time     // when a peer last reached it at URL and got its signature; zero: unproven
	AttestedAge time.Duration // as HeartbeatAge

	FencedAt     time.Time
	FencedBy     ExecutorID // zero: an operator
	FencedReason string

	// Erasures is how often something was erased in the store so far: what was
	// read before it grew may say what is to be forgotten. Only a heartbeat
	// returns it.
	Erasures int64
}

// Stale reports whether its lease had run out when the row was read.
func (e Executor) Stale() bool { return e.HeartbeatAge > e.LeaseTTL }

// Attested reports whether a peer's proof is younger than within. One from the
// future, set before the database's clock stepped back, is of unknown age and
// proves nothing once it lies further ahead than that.
func (e Executor) Attested(within time.Duration) bool {
	return !e.AttestedAt.IsZero() && e.AttestedAge.Abs() < within
}

// Registration is what a boot says about itself.
type Registration struct {
	ID        ExecutorID
	Slot      string // 1 to 255 bytes of UTF-8 without NUL
	URL       string // http or https, a host, a port or none, nothing else
	PublicKey ed25519.PublicKey
	Policy    Policy
	LeaseTTL  time.Duration // at least a millisecond

	// Replaces is the previous boot of the slot, as it was when it failed to
	// answer the probe that must precede a registration. Zero: the slot is
	// believed free.
	Replaces Sighting
}

// Sighting is an executor and the heartbeat count it had when it was seen.
type Sighting struct {
	Executor ExecutorID
	Beat     int64
}

// Validate joins every fault in one [InvalidError]-bearing error.
func (r Registration) Validate() error {
	var faults faults
	faults.check(r.ID != ExecutorID{}, "id", "missing")
	faults.check(len(r.Slot) >= 1 && len(r.Slot) <= 255 && cleanText(r.Slot), "slot", "want 1 to 255 bytes of UTF-8 without NUL")
	faults.check(len(r.PublicKey) == ed25519.PublicKeySize, "public key", "want 32 bytes of ed25519")
	faults.check(r.Policy == PolicyLease || r.Policy == PolicyProbe, "policy", `want "probe" or "lease"`)
	faults.check(r.LeaseTTL >= time.Millisecond && r.LeaseTTL <= 24*time.Hour, "lease ttl", "want 1ms to 24h")
	faults.add(ValidateExecutorURL(r.URL))
	return faults.join()
}

// ValidateExecutorURL accepts scheme, host and port and nothing else: a path,
// a query, a fragment or userinfo in a stored address would be somebody's way
// to make this fleet send requests elsewhere.
func ValidateExecutorURL(raw string) error {
	bad := func(reason string) error { return &InvalidError{Field: "executor url", Reason: reason} }
	u, err := url.Parse(raw)
	switch {
	case err != nil || !cleanText(raw) || len(raw) > 2048:
		return bad("not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("want http or https")
	case u.Hostname() == "":
		return bad("no host")
	case u.User != nil:
		return bad("has userinfo")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(raw, "?#"):
		return bad("has more than scheme, host and port")
	}
	return nil
}

// cleanText reports whether a text column takes s.
func cleanText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
