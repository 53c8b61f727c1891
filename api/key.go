package api

import (
	"fmt"
	"net/http"
	"strings"
)

// The key's header, draft-ietf-httpapi-idempotency-key-header-07.
const headerKey = "Idempotency-Key"

// maxKeyBytes bounds a key, after unquoting.
const maxKeyBytes = 255

// parseKey reads the one key of a request. A structured-field string
// (RFC 9651) and the same text without quotes are the same key: 1 to 255 bytes
// of visible ASCII.
//
// A structured field may carry parameters and a list, and an intermediary may
// join two header lines into one, so text without quotes may hold neither
// comma nor semicolon; a quoted key may.
func parseKey(values []string) (string, *problem) {
	if len(values) != 1 {
		return "", invalidKey("it came more than once")
	}
	raw := strings.Trim(values[0], " \t")
	key, quoted := raw, strings.HasPrefix(raw, `"`)
	if quoted {
		var p *problem
		if key, p = unquoteKey(raw); p != nil {
			return "", p
		}
	}
	if key == "" {
		return "", invalidKey("it is empty")
	}
	if len(key) > maxKeyBytes {
		return "", &problem{code: codeKeyTooLong, detail: fmt.Sprintf("The key has %d bytes; at most %d are allowed.", len(key), maxKeyBytes)}
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c <= ' ' || c > '~':
			return "", invalidKey("it holds other bytes than visible ASCII")
		case !quoted && (c == '"' || c == ',' || c == ';'):
			return "", invalidKey(`without quotes it may hold no quote, comma or semicolon`)
		}
	}
	return key, nil
}

// unquoteKey reads a structured-field string and nothing after it.
func unquoteKey(raw string) (string, *problem) {
	inner := raw[1:]
	end := strings.IndexAny(inner, `"\`)
	if end >= 0 && inner[end] == '"' { // nothing escaped
		if end != len(inner)-1 {
			return "", invalidKey("something follows its closing quote")
		}
		return inner[:end], nil
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		switch c := inner[i]; c {
		case '"':
			if i != len(inner)-1 {
				return "", invalidKey("something follows its closing quote")
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", invalidKey(`a backslash may only escape a quote or a backslash`)
			}
			b.WriteByte(inner[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", invalidKey("its closing quote is missing")
}

func invalidKey(why string) *problem {
	return &problem{code: codeKeyInvalid, detail: "The Idempotency-Key cannot be read: " + why + "."}
}

// icebergKey accepts a UUID of version 7 (RFC 9562) in its text form, in any
// letter case, and returns it in lower case.
func icebergKey(key string) (string, *problem) {
	const form = "xxxxxxxx-xxxx-7xxx-vxxx-xxxxxxxxxxxx"
	ok := len(key) == len(form)
	for i := 0; ok && i < len(form); i++ {
		switch c := key[i] | 0x20; form[i] { // lower case; digits and hyphens stay
		case '-':
			ok = key[i] == '-'
		case '7':
			ok = key[i] == '7'
		case 'v':
			ok = c == '8' || c == '9' || c == 'a' || c == 'b'
		default:
			ok = '0' <= key[i] && key[i] <= '9' || 'a' <= c && c <= 'f'
		}
	}
	if !ok {
		return "", invalidKey("here it must be a UUID of version 7 in its form of 36 characters")
	}
	return strings.ToLower(key), nil
}

// headerPrefer chooses how long a duplicate waits, RFC 7240.
const headerPrefer = "Prefer"

// preferredWait is the value of the first wait preference, in whole seconds.
func preferredWait(h http.Header) (seconds int, ok bool) {
	for _, line := range h[headerPrefer] {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";") // parameters mean nothing to us
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value = strings.Trim(strings.TrimSpace(value), `"`)
			return deltaSeconds(value)
		}
	}
	return 0, false
}

// deltaSeconds reads RFC 9111's delta-seconds. A number too large to count is
// the largest that is not.
func deltaSeconds(s string) (int, bool) {
	const largest = 1 << 31
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int(s[i]-'0'), largest)
	}
	return n, s != ""
}
