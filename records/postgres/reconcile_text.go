package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// parameters of a [Query], and the types of those that are not text.
var parameters = map[string]string{
	"operation_ref": "text", "operation": "text", "resource": "text", "realm": "text", "key": "text",
	"fingerprint": "text", "epoch": "bigint", "previous_executor": "text",
}

// numbered is a text with its named parameters replaced by numbered ones, and
// their names in order. It knows what is quoted and what is a comment, and
// that :: is a cast. A semicolon may only end the text.
func numbered(text string) (_ string, names []string, _ error) {
	if strings.TrimSpace(text) == "" {
		return "", nil, errors.New("missing")
	}
	text = strings.TrimRight(text, "; \t\r\n")
	var b strings.Builder
	for i := 0; i < len(text); {
		n := opaque(text[i:])
		switch {
		case n < 0:
			return "", nil, errors.New("a quote or comment does not end")
		case n > 0:
		case text[i] == ';':
			return "", nil, errors.New("want one statement")
		case strings.HasPrefix(text[i:], "::"):
			n = 2
		case text[i] == ':' && word(text[i+1:]) > 0:
			n = 1 + word(text[i+1:])
			name := text[i+1 : i+n]
			sqlType, known := parameters[name]
			if !known {
				return "", nil, fmt.Errorf(":%s is no parameter", name)
			}
			at := slices.Index(names, name)
			if at < 0 {
				at, names = len(names), append(names, name)
			}
			fmt.Fprintf(&b, "($%d::%s)", at+1, sqlType)
			i += n
			continue
		default:
			n = max(1, word(text[i:])) // a word whole, so that its end opens nothing
		}
		b.WriteString(text[i : i+n])
		i += n
	}
	return b.String(), names, nil
}

// word is the length of the identifier at the beginning of s.
func word(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '$') {
			return i
		}
	}
	return len(s)
}

// opaque is the length of the quoted text or comment at the beginning of s: 0,
// there is none; -1, it does not end.
func opaque(s string) int {
	switch {
	case strings.HasPrefix(s, "--"):
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			return i
		}
		return len(s)
	case strings.HasPrefix(s, "/*"):
		return comment(s)
	case len(s) > 1 && (s[0] == 'e' || s[0] == 'E') && s[1] == '\'':
		if n := quoted(s[1:], true); n > 0 {
			return n + 1
		}
		return -1
	case s[0] == '\'' || s[0] == '"':
		return quoted(s, false)
	case s[0] == '$':
		return dollars(s)
	}
	return 0
}

// comment is the length of a block comment, which may hold others.
func comment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			if i++; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// quoted is the length of what stands between quotes, doubled ones included.
func quoted(s string, backslashes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslashes && s[i] == '\\':
			i++
		case s[i] != s[0]:
		case i+1 < len(s) && s[i+1] == s[0]:
			i++
		default:
			return i + 1
		}
	}
	return -1
}

// dollars is the length of a text in dollar quotes.
func dollars(s string) int {
	tag := word(s[1:])
	if i := strings.IndexByte(s[1:1+tag], '$'); i >= 0 {
		tag = i // a tag holds no dollar
	}
	if 1+tag >= len(s) || s[1+tag] != '$' {
		return 0
	}
	quote := s[:tag+2]
	if end := strings.Index(s[len(quote):], quote); end >= 0 {
		return len(quote) + end + len(quote)
	}
	return -1
}
