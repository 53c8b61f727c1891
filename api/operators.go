package api

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Role is what an operator may do.
type Role string

const (
	// RoleRead may look at everything: keys are shown, bodies never.
	RoleRead Role = "read"
	// RoleOperate may also change what stands there.
	RoleOperate Role = "operate"
)

// Operators are who may use the operator API, and the hashes of their tokens.
type Operators struct{ all []operator }

type operator struct {
	name string
	role Role
	hash [sha256.Size]byte // of the token
}

// maxOperatorName is how long a name may be.
const maxOperatorName = 64

// ParseOperators reads the text of a tokens file: one operator a line, as role,
// name and the SHA-256 of the token, in words such as
//
//	operate ada sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//
// Empty lines and those that begin with # say nothing. One name may have
// several tokens of one role, so that a token can be exchanged for another. The
// error joins every fault, each with its line.
func ParseOperators(text []byte) (*Operators, error) {
	var o Operators
	var faults []error
	roles, hashes := map[string]Role{}, map[[sha256.Size]byte]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		x, err := parseOperator(line)
		first, known := hashes[x.hash]
		role, named := roles[x.name]
		switch {
		case err != nil:
		case known:
			err = fmt.Errorf("the token of line %d again", first)
		case named && role != x.role:
			err = fmt.Errorf("%s has role %s in another line", x.name, role)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		hashes[x.hash], roles[x.name] = n, x.role
		o.all = append(o.all, x)
	}
	if err := lines.Err(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 && len(o.all) == 0 {
		faults = append(faults, errors.New("names no operator"))
	}
	return &o, errors.Join(faults...)
}

// parseOperator never quotes the line: it may hold a token in clear, by
// mistake.
func parseOperator(line string) (operator, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return operator{}, fmt.Errorf("%d words, want role, name and sha256:…", len(words))
	}
	x := operator{role: Role(words[0]), name: words[1]}
	if x.role != RoleRead && x.role != RoleOperate {
		return x, errors.New("the role is neither read nor operate")
	}
	if !validOperatorName(x.name) {
		return x, fmt.Errorf("a name has 1 to %d letters, digits and any of . _ - @", maxOperatorName)
	}
	digits, hashed := strings.CutPrefix(words[2], "sha256:")
	sum, err := hex.DecodeString(digits)
	if !hashed || err != nil || len(sum) != sha256.Size {
		return x, errors.New("want sha256: and the 64 hexadecimal digits of the token's SHA-256, never the token itself")
	}
	x.hash = [sha256.Size]byte(sum)
	if x.hash == sha256.Sum256(nil) {
		return x, errors.New("the hash of an empty token")
	}
	return x, nil
}

func validOperatorName(name string) bool {
	if name == "" || len(name) > maxOperatorName {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-@", rune(c)) {
			return false
		}
	}
	return true
}

// NewOperator makes a token of 256 random bits, and the line for the tokens
// file that lets it in.
func NewOperator(name string, role Role) (token, line string, err error) {
	var random [32]byte
	rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	token = "probate_" + base64.RawURLEncoding.EncodeToString(random[:])
	line = fmt.Sprintf("%s %s sha256:%x", role, name, sha256.Sum256([]byte(token)))
	_, err = parseOperator(line)
	return token, line, err
}

// find is who has this token. It takes as long whoever that is, and whether it
// is anybody. Hashes are compared, so time could at most tell of a hash.
func (o *Operators) find(token string) (operator, bool) {
	sum, at := sha256.Sum256([]byte(token)), -1
	for i := range o.all {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], o.all[i].hash[:]), i, at)
	}
	if at < 0 {
		return operator{}, false
	}
	return o.all[at], true
}
