package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// declared is what a message says about the bytes before they come.
type declared struct {
	length *int64
	sha256 []byte
}

// declaredBytes reads metadata.contentLength and metadata.sha256: what does not
// match in the end is an error, and nothing is shown of it.
func declaredBytes(t Task) (declared, error) {
	var d declared
	metadata := t.message().Metadata
	switch v := metadata["contentLength"].(type) {
	case nil:
	case float64:
		n := int64(v)
		if v < 0 || float64(n) != v {
			return d, errors.New("metadata.contentLength: want a whole number of bytes")
		}
		d.length = &n
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return d, errors.New("metadata.contentLength: want a whole number of bytes")
		}
		d.length = &n
	default:
		return d, fmt.Errorf("metadata.contentLength: want a number, not %T", v)
	}
	switch v := metadata["sha256"].(type) {
	case nil:
	case string:
		sum, err := hex.DecodeString(v)
		if err != nil || len(sum) != 32 {
			return d, errors.New("metadata.sha256: want 64 hexadecimal digits")
		}
		d.sha256 = sum
	default:
		return d, fmt.Errorf("metadata.sha256: want a string, not %T", v)
	}
	return d, nil
}
