package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ParsePrincipal reads how an operator names a principal, which depends on how
// the route names it:
//
//	none
//	trusted_header:alice
//	authorize:alice
//	func:alice
//	jwt:{"iss":"https://idp","sub":"7"}      the claims in the route's order
//	headers:{"Authorization":"Bearer …"}     the headers in the route's order
//
// It returns what the principal part of a record's key is made of.
func ParsePrincipal(name string) (string, error) {
	kind, rest, given := strings.Cut(name, ":")
	switch kind {
	case "none":
		if !given {
			return frame("none"), nil
		}
	case "trusted_header", "authorize", "func":
		if rest != "" {
			return frame(strings.TrimSuffix(kind, "_header"), rest), nil
		}
	case "jwt":
		parts := []string{"jwt"}
		err := eachMember(rest, func(name string, value json.RawMessage) error {
			var v any
			if err := json.Unmarshal(value, &v); err != nil {
				return err
			}
			text, err := json.Marshal(v) // as the verifier writes it
			parts = append(parts, name, string(text))
			return err
		})
		return frame(parts...), err
	case "headers":
		return namedByHeaders(rest)
	}
	return "", errors.New(`want none, trusted_header:NAME, authorize:NAME, func:NAME, jwt:{"CLAIM":"VALUE",…} or headers:{"NAME":"VALUE",…}`)
}

func namedByHeaders(object string) (string, error) {
	var names []string
	r := http.Request{Header: http.Header{}}
	err := eachMember(object, func(name string, value json.RawMessage) error {
		var one string
		var several []string
		if json.Unmarshal(value, &one) == nil {
			several = []string{one}
		} else if err := json.Unmarshal(value, &several); err != nil {
			return fmt.Errorf("%s: want a value, or a list of them", name)
		}
		names = append(names, name)
		if len(several) > 0 {
			r.Header[http.CanonicalHeaderKey(name)] = several
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	principal, missing := headersPrincipal(names)(&r, "")
	if missing != nil {
		return "", errors.New("want at least one header")
	}
	return principal, nil
}

// eachMember reads the members of a JSON object of at least one, in their
// order.
func eachMember(object string, member func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader([]byte(object)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || !d.More() {
		return errors.New("want a JSON object with members")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("parse JSON object: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("parse JSON object: %w", err)
		}
		if err := member(t.(string), value); err != nil { // a member's name is a string
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("parse JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}
