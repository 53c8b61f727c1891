package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// canonicalJSON is the body in the canonical form of RFC 8785, less the
// ignored members. It is not ok if the form would lose something: then two
// requests that differ could look the same.
func canonicalJSON(body []byte, ignored []pointer) (canonical []byte, ok bool) {
	if !jsonNests(body, maxJSONDepth) {
		return nil, false
	}
	canonical, err := jcs.Transform(body) // refuses invalid UTF-8, lone surrogates and repeated members
	if err != nil || !numbersSurvive(body) {
		return nil, false
	}
	if len(ignored) == 0 {
		return canonical, true
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil, false
	}
	for _, p := range ignored {
		value = p.remove(value)
	}
	rest, err := json.Marshal(value)
	if err != nil {
		return nil, false
	}
	canonical, err = jcs.Transform(rest)
	return canonical, err == nil
}

// maxJSONDepth is how deep a body may nest and still be compared by what it
// says.
const maxJSONDepth = 512

// jsonNests reports whether no more than depth brackets are open at once,
// strings aside.
func jsonNests(body []byte, depth int) bool {
	open, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if open++; open > depth {
				return false
			}
		case c == ']' || c == '}':
			open--
		}
	}
	return true
}

// numbersSurvive reports whether every number of a JSON text is exactly what a
// double prints as. The canonical form has only doubles: in it
// 9007199254740993 would be the same amount as 9007199254740992.
func numbersSurvive(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return true // the end; that it is JSON was seen before
		}
		if n, is := token.(json.Number); is && !numberSurvives(string(n)) {
			return false
		}
	}
}

func numberSurvives(literal string) bool {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || math.IsInf(f, 0) {
		return false
	}
	digits, exponent := scientific(literal)
	printed, printedExponent := scientific(strconv.FormatFloat(f, 'e', -1, 64))
	return digits == printed && (digits == "" || exponent == printedExponent)
}

// scientific is a number as 0.digits × 10^exponent, digits without zeros at
// either end.
func scientific(literal string) (digits string, exponent int) {
	mantissa, e, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(literal, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent, _ = strconv.Atoi(e) // beyond int no double comes near
	exponent += len(whole)
	digits = whole + fraction
	trimmed := strings.TrimLeft(digits, "0")
	exponent -= len(digits) - len(trimmed)
	return strings.TrimRight(trimmed, "0"), exponent
}

// pointer is a JSON pointer (RFC 6901), its steps unescaped.
type pointer []string

func parsePointer(raw string) (pointer, error) {
	if !strings.HasPrefix(raw, "/") {
		return nil, fmt.Errorf("%q: a JSON pointer begins with /", raw)
	}
	steps := strings.Split(raw[1:], "/")
	for i, s := range steps {
		for j := range len(s) {
			if s[j] == '~' && (j+1 == len(s) || s[j+1] != '0' && s[j+1] != '1') {
				return nil, fmt.Errorf("%q: ~ must be ~0 or ~1", raw)
			}
		}
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	return steps, nil
}

// remove takes what p names out of value. An element of an array leaves a null
// behind, so that the others keep their places.
func (p pointer) remove(value any) any {
	step, rest := p[0], p[1:]
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			if step != "*" && step != name {
				continue
			}
			if len(rest) == 0 {
				delete(v, name)
			} else {
				v[name] = rest.remove(v[name])
			}
		}
	case []any:
		for i := range v {
			if step != "*" && step != strconv.Itoa(i) {
				continue
			}
			if len(rest) == 0 {
				v[i] = nil
			} else {
				v[i] = rest.remove(v[i])
			}
		}
	}
	return value
}
