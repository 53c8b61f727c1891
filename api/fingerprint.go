package api

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
)

// FingerprintOptions change what makes two requests the same. By default that
// is method, operation, path, query, media type and the bytes of the body, as
// they came.
type FingerprintOptions struct {
	// Headers whose values count too.
	Headers []string
	// CanonicalJSON compares JSON bodies by what they say (RFC 8785): order of
	// members, white space and the spelling of strings and numbers do not
	// count. A body that is no JSON, says a member twice or holds a number
	// that a double cannot, counts by its bytes.
	CanonicalJSON bool
	// IgnoreJSON are JSON pointers (RFC 6901), such as /sent_at or
	// /items/*/id, of members that do not count; * stands for every element
	// or member. It implies CanonicalJSON.
	IgnoreJSON []string
}

func (o FingerprintOptions) validate(at fieldFaults) {
	for _, h := range o.Headers {
		if !httpguts.ValidHeaderFieldName(h) {
			at.at("headers").add("%q is no header name", h)
		}
	}
	for _, p := range o.IgnoreJSON {
		if _, err := parsePointer(p); err != nil {
			at.at("ignore_json").add("%v", err)
		}
	}
}

// fingerprinter computes the fingerprints of one route.
type fingerprinter struct {
	operation string
	headers   []string // canonical names, sorted
	canonical bool
	ignored   []pointer
}

func newFingerprinter(operation string, o FingerprintOptions) (fingerprinter, error) {
	f := fingerprinter{operation: operation, canonical: o.CanonicalJSON || len(o.IgnoreJSON) > 0}
	for _, h := range o.Headers {
		f.headers = append(f.headers, http.CanonicalHeaderKey(h))
	}
	slices.Sort(f.headers)
	f.headers = slices.Compact(f.headers)
	for _, raw := range o.IgnoreJSON {
		p, err := parsePointer(raw)
		if err != nil {
			return f, err
		}
		f.ignored = append(f.ignored, p)
	}
	return f, nil
}

// of is the fingerprint of a request whose body was read. How it was framed
// does not matter. Each part is preceded by its length, so that none can be
// taken for another.
func (f fingerprinter) of(r *http.Request, body []byte) records.Fingerprint {
	media := mediaType(r.Header)
	form := "bytes"
	if f.canonical && isJSON(media) {
		if c, ok := canonicalJSON(body, f.ignored); ok {
			form, body = "json", c
		}
	}
	parts := make([]string, 0, 16)
	parts = append(parts, r.Method, f.operation, r.URL.EscapedPath(), r.URL.RawQuery, media, form, string(body))
	for _, name := range f.headers {
		values := r.Header[name]
		parts = append(parts, name, strconv.Itoa(len(values))) // or a value could pass for the next name
		parts = append(parts, values...)
	}
	return records.FingerprintOf(parts...)
}

// mediaType is the Content-Type with letter case and spacing, which mean
// nothing, taken out. What cannot be read counts as it came.
func mediaType(h http.Header) string {
	values := h["Content-Type"]
	if len(values) == 0 {
		return ""
	}
	raw := strings.Join(values, "\n")
	switch raw { // as most are
	case "application/json", "text/plain", "application/x-www-form-urlencoded":
		return raw
	}
	media, params, err := mime.ParseMediaType(raw)
	if err != nil {
		return raw
	}
	if formatted := mime.FormatMediaType(media, params); formatted != "" {
		return formatted
	}
	return raw
}

// isJSON reports whether a media type is JSON or says it is built on it
// (RFC 6839).
func isJSON(media string) bool {
	media, _, _ = strings.Cut(media, ";")
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
