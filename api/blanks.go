package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"

	"github.com/probate-dev/probate/records"
)

// A blank of a reconciler's template is {operation}, {resource}, {realm},
// {key} or {operation_ref}, which the record can fill, or {path:NAME}, a
// parameter of the route's path, or {json:POINTER}, a string, number or
// boolean of the request's JSON body, which only the request can.
var ofRecords = []string{"operation", "resource", "realm", "key", "operation_ref"}

const (
	pathBlank = "path:"
	jsonBlank = "json:"
)

// validateBlanks accepts a template with such blanks on a route of that path;
// "": a router knows it that is not ours.
func validateBlanks(template, path string) error {
	if err := validateTemplate(template); err != nil {
		return err
	}
	for _, blank := range blanksOf(template) {
		if name, ok := strings.CutPrefix(blank, pathBlank); ok {
			if !hasParameter(path, name) {
				return fmt.Errorf("%q: the route's path has no {%s}", template, name)
			}
			continue
		}
		if raw, ok := strings.CutPrefix(blank, jsonBlank); ok {
			if p, err := parsePointer(raw); err != nil || slices.Contains(p, "*") {
				return fmt.Errorf("%q: %q is no JSON pointer to one value", template, raw)
			}
			continue
		}
		if !slices.Contains(ofRecords, blank) {
			return fmt.Errorf("%q: {%s} is none of %s, %sNAME, %s/POINTER", template, blank, strings.Join(ofRecords, ", "), pathBlank, jsonBlank)
		}
	}
	return nil
}

// hasParameter reports whether a route's path has {name}, as far as is known.
func hasParameter(path, name string) bool {
	return path == "" || strings.Contains(path, "{"+name+"}") || strings.Contains(path, "{"+name+":") ||
		name == "*" && strings.HasSuffix(path, "*")
}

func blanksOf(template string) (blanks []string) {
	expand(template, func(name string) string {
		blanks = append(blanks, name)
		return ""
	})
	return blanks
}

// needsRequest reports whether a template has blanks that no record can fill.
func (c Reconcile) needsRequest() bool {
	return slices.ContainsFunc(c.templates(), func(t string) bool {
		return strings.Contains(t, "{"+pathBlank) || strings.Contains(t, "{"+jsonBlank)
	})
}

func (c Reconcile) templates() []string {
	all := []string{c.Get}
	for _, t := range c.ResponseHeaders {
		all = append(all, t)
	}
	return all
}

// ignored is a blank that duplicates may fill differently, since it is left
// out of the fingerprint; "": there is none.
func (c Reconcile) ignored(o FingerprintOptions) string {
	for _, t := range c.templates() {
		for _, blank := range blanksOf(t) {
			raw, ok := strings.CutPrefix(blank, jsonBlank)
			p, err := parsePointer(raw)
			if !ok || err != nil {
				continue
			}
			for _, raw := range o.IgnoreJSON {
				if q, err := parsePointer(raw); err == nil && q.covers(p) {
					return blank
				}
			}
		}
	}
	return ""
}

// covers reports whether what p names holds what other names.
func (p pointer) covers(other pointer) bool {
	if len(p) > len(other) {
		return false
	}
	for i, step := range p {
		if step != "*" && step != other[i] {
			return false
		}
	}
	return true
}

// asked is what a client asked for, as far as templates need it. A duplicate
// of an interrupted request has the same fingerprint, so its path and body say
// the same.
type asked struct {
	path map[string]string
	body []byte
}

func askedOf(x *exchange, c Reconcile) *asked {
	a := &asked{path: map[string]string{}, body: x.body}
	for _, t := range c.templates() {
		for _, blank := range blanksOf(t) {
			if name, ok := strings.CutPrefix(blank, pathBlank); ok {
				a.path[name] = pathValue(x.r, name) // now: the router uses its own again
			}
		}
	}
	return a
}

// blanks fills templates, and notes why it cannot.
type blanks struct {
	record  records.Record
	asked   *asked
	missing string
}

// escaped is a blank's value as it may stand in a URL's path or query. An
// empty one is missing: without its last segment a path names another thing,
// which may well be there.
func (b *blanks) escaped(blank string) string {
	value, err := b.value(blank)
	switch {
	case err != nil:
		b.missing = fmt.Sprintf("{%s}: %v", blank, err)
	case value == "":
		b.missing = fmt.Sprintf("{%s} is empty", blank)
	case slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return r == '/' || r == '\\' }), isDots):
		b.missing = fmt.Sprintf("{%s} leads elsewhere", blank)
	}
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

func (b *blanks) value(blank string) (string, error) {
	switch blank {
	case "operation":
		return b.record.Operation, nil
	case "resource":
		return b.record.Resource, nil
	case "realm":
		return b.record.Realm, nil
	case "key":
		return b.record.Key, nil
	case "operation_ref":
		return b.record.ID.String(), nil
	}
	if b.asked == nil {
		return "", errors.New("the request is not at hand; a duplicate brings it")
	}
	if name, ok := strings.CutPrefix(blank, pathBlank); ok {
		return b.asked.path[name], nil
	}
	p, err := parsePointer(strings.TrimPrefix(blank, jsonBlank))
	if err != nil {
		return "", err
	}
	return p.scalar(b.asked.body)
}

// scalar is the string, number or boolean at p, as it is spelled there. Of a
// body that says a member twice nobody knows which one the service has read.
func (p pointer) scalar(body []byte) (string, error) {
	noJSON := errors.New("the request is no JSON, or not only")
	if !jsonNests(body, maxJSONDepth) {
		return "", noJSON
	}
	if _, err := jcs.Transform(body); err != nil {
		return "", noJSON
	}
	var at any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&at) != nil {
		return "", noJSON
	}
	for _, step := range p {
		switch within := at.(type) {
		case map[string]any:
			at = within[step]
		case []any:
			at = nil
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(within) && strconv.Itoa(i) == step {
				at = within[i]
			}
		default:
			at = nil
		}
	}
	switch v := at.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	}
	return "", errors.New("the request has no string, number or boolean there")
}
