package move

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A part is a file beside its final name, hidden, that says whose it is: the
// flow, hashed since it may be any bytes, and the epoch.
//
//	.<32 hex of the flow>.<epoch>.part    being written
//	.<32 hex of the flow>.<epoch>.old     taken from its owner, to be resumed from
const (
	suffixPart = "part"
	suffixOld  = "old"
)

type partName struct {
	family string
	epoch  int64
	suffix string
}

func nameOf(id Identity) partName { return partName{family(id.Flow), id.Epoch, suffixPart} }

func family(flow string) string {
	sum := sha256.Sum256([]byte("probate/part/v1\x00" + flow))
	return fmt.Sprintf("%x", sum[:16])
}

func (n partName) String() string {
	return fmt.Sprintf(".%s.%020d.%s", n.family, n.epoch, n.suffix)
}

// old is the name under which a newer owner holds the part.
func (n partName) old() partName { n.suffix = suffixOld; return n }

// parsePartName reads a name of the family, and refuses all others.
func parsePartName(family, s string) (partName, bool) {
	rest, ok := strings.CutPrefix(s, "."+family+".")
	if !ok {
		return partName{}, false
	}
	digits, suffix, _ := strings.Cut(rest, ".")
	epoch, err := strconv.ParseInt(digits, 10, 64)
	n := partName{family, epoch, suffix}
	return n, err == nil && n.String() == s && (suffix == suffixPart || suffix == suffixOld)
}

// isPartName reports whether a file's name is kept for parts, of whatever flow.
func isPartName(s string) bool {
	if len(s) < 33 {
		return false
	}
	_, ok := parsePartName(s[1:33], s)
	return ok
}

// parts lists what the flow has in a folder, the newest epoch first.
func parts(dir *os.Root, family string) ([]partName, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, fileFault(AtSink, err)
	}
	defer shut(d)
	var found []partName
	for {
		// In portions: a folder of data may hold a million files.
		names, err := d.Readdirnames(1024)
		for _, s := range names {
			if n, ok := parsePartName(family, s); ok {
				found = append(found, n)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			slices.SortFunc(found, func(a, b partName) int { return strings.Compare(b.String(), a.String()) })
			return found, nil
		case err != nil:
			return nil, fileFault(AtSink, err)
		}
	}
}
