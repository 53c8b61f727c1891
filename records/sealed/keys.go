package sealed

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// maxKeyID bounds a key's id. It is shorter than a key in base64, so that one
// written in the wrong place is refused and not shown as an id.
const maxKeyID = 32

// Keys seal and open: the first seals, all open. The zero value holds none.
// However it is printed, it shows ids and never a key.
type Keys struct {
	ring []key
	rest bool // they only open
}

type key struct {
	id     string
	aead   cipher.AEAD
	derive []byte // for derivedNonce
}

// ParseKeys reads keys, each written as id:base64 of its 32 bytes, on lines of
// their own or separated by commas. A dash in the place of the first key says
// that nothing is sealed, and those behind it only open. Empty lines and lines
// that begin with # do not count. It reports every fault, by its line, and
// quotes nothing.
func ParseKeys(text string) (Keys, error) {
	var (
		k      Keys
		seen   [][]byte
		faults []error
		n      int
	)
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		entries := strings.Split(line, ",")
		for i, entry := range entries {
			where := fmt.Sprintf("line %d", n)
			if len(entries) > 1 {
				where += fmt.Sprintf(", entry %d", i+1)
			}
			entry = strings.TrimSpace(entry)
			if entry == "-" && len(seen)+len(faults) == 0 && !k.rest {
				k.rest = true
				continue
			}
			one, secret, err := parseKey(entry)
			same := func(other []byte) bool { return bytes.Equal(other, secret) }
			switch {
			case err != nil:
				faults = append(faults, fmt.Errorf("%s: %w", where, err))
			case slices.Contains(k.IDs(), one.id):
				faults = append(faults, fmt.Errorf("%s: the id was given before", where))
			case slices.ContainsFunc(seen, same):
				faults = append(faults, fmt.Errorf("%s: the key was given before, under another id", where))
			default:
				k.ring, seen = append(k.ring, one), append(seen, secret)
			}
		}
	}
	if len(faults) > 0 {
		return Keys{}, errors.Join(faults...)
	}
	return k, nil
}

func parseKey(entry string) (k key, secret []byte, err error) {
	id, encoded, ok := strings.Cut(entry, ":")
	if !ok || !validKeyID(id) {
		return key{}, nil, fmt.Errorf("want id:base64, the id of 1 to %d letters, digits, dots, dashes and underscores", maxKeyID)
	}
	secret, err = base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(encoded))
	if err != nil || len(secret) != chacha20poly1305.KeySize {
		return key{}, nil, errors.New("want 32 bytes in base64 after the id, as probate seal key prints them")
	}
	if bytes.Count(secret, secret[:1]) == len(secret) {
		return key{}, nil, errors.New("all bytes of the key are the same: that is no key")
	}
	aead, err := chacha20poly1305.NewX(secret)
	derive := hmac.New(sha256.New, secret)
	derive.Write([]byte("probate/seal/nonce/v1"))
	return key{id: id, aead: aead, derive: derive.Sum(nil)}, secret, err
}

func validKeyID(id string) bool {
	return len(id) > 0 && len(id) <= maxKeyID && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// NewKey makes a key, in the form that ParseKeys reads.
func NewKey(id string) (string, error) {
	if !validKeyID(id) {
		return "", fmt.Errorf("key id: want 1 to %d letters, digits, dots, dashes and underscores", maxKeyID)
	}
	secret := make([]byte, chacha20poly1305.KeySize)
	rand.Read(secret) // never fails: crypto/rand ends the program instead
	return id + ":" + base64.StdEncoding.EncodeToString(secret), nil
}

// IDs lists the keys by their ids, in their order.
func (k Keys) IDs() []string {
	ids := make([]string, len(k.ring))
	for i := range k.ring {
		ids[i] = k.ring[i].id
	}
	return ids
}

// Seals reports whether anything is sealed: with the first of IDs.
func (k Keys) Seals() bool { return len(k.ring) > 0 && !k.rest }

// Meant reports whether there are keys, or a dash that says that there are to
// be none.
func (k Keys) Meant() bool { return len(k.ring) > 0 || k.rest }

func (k Keys) find(id []byte) (key, bool) {
	for _, one := range k.ring {
		if one.id == string(id) {
			return one, true
		}
	}
	return key{}, false
}

// Format prints the ids, whatever the verb.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keys "+fmt.Sprint(k.IDs())) }

// LogValue is the ids.
func (k Keys) LogValue() slog.Value { return slog.AnyValue(k.IDs()) }

// MarshalText is the ids.
func (k Keys) MarshalText() ([]byte, error) { return fmt.Append(nil, k), nil }
