package records

import (
	"encoding/binary"
	"fmt"
)

// Header is one header line. Order and repetition matter, so a response keeps
// a list and not a map.
type Header struct{ Name, Value string }

// AppendHeaders appends the stored form of headers to b: their count, then
// each name and value preceded by its length, all as unsigned varints. Any
// byte may stand in a name or value.
func AppendHeaders(b []byte, headers []Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(headers)))
	for _, h := range headers {
		b = binary.AppendUvarint(b, uint64(len(h.Name)))
		b = append(b, h.Name...)
		b = binary.AppendUvarint(b, uint64(len(h.Value)))
		b = append(b, h.Value...)
	}
	return b
}

// ParseHeaders reads the stored form. A form that is cut short, too long or
// counts more than it holds is [ErrCorrupt].
func ParseHeaders(b []byte) ([]Header, error) {
	n, rest, ok := cutUvarint(b)
	if !ok || n > uint64(len(rest))/2 {
		return nil, fmt.Errorf("parse headers: count: %w", ErrCorrupt)
	}
	var headers []Header
	if n > 0 {
		headers = make([]Header, n)
	}
	for i := range headers {
		if headers[i].Name, rest, ok = cutFramed(rest); !ok {
			return nil, fmt.Errorf("parse headers: name %d: %w", i, ErrCorrupt)
		}
		if headers[i].Value, rest, ok = cutFramed(rest); !ok {
			return nil, fmt.Errorf("parse headers: value %d: %w", i, ErrCorrupt)
		}
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("parse headers: %d bytes left over: %w", len(rest), ErrCorrupt)
	}
	return headers, nil
}

func cutUvarint(b []byte) (uint64, []byte, bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

func cutFramed(b []byte) (string, []byte, bool) {
	n, rest, ok := cutUvarint(b)
	if !ok || n > uint64(len(rest)) {
		return "", nil, false
	}
	return string(rest[:n]), rest[n:], true
}
