package api

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
)

func urlOf(path, query string) *url.URL { return &url.URL{Path: path, RawQuery: query} }

func TestStorable(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Connection": {"X-Hop, keep-alive"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "Te": {"trailers"}, "Transfer-Encoding": {"chunked"},
		"Upgrade": {"x"}, "Trailer": {"X-Sum"}, "X-Sum": {"1"}, "Trailer:X-Late": {"1"}, "Date": {"now"}, "Set-Cookie": {"a", "b"}, "WWW-Authenticate": {"c"},
		"Authorization": {"d"}, "Proxy-Authenticate": {"e"}, "Proxy-Connection": {"f"}, "Content-Length": {"3"}, "Idempotent-Replayed": {"true"},
		"Idempotency-Key": {"k"}, "X-Request-Id": {"outer"}, "Vary": {"Accept"}, "Link": {"1", "", "2"}, "Content-Type": nil, "Etag": {`"v"`},
	}
	got := storable(h, http.Header{"X-Request-Id": {"outer"}, "Vary": {"Origin"}})
	want := []records.Header{{Name: "Etag", Value: `"v"`}, {Name: "Link", Value: "1"}, {Name: "Link"}, {Name: "Link", Value: "2"}, {Name: "Vary", Value: "Accept"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzCapturedHeaders: whatever a handler sets, what is stored leaves out what
// must not be replayed, and comes back as it was.
func FuzzCapturedHeaders(f *testing.F) {
	f.Add("X-A", "1", "x-a", "2", "X-A")
	f.Add("Set-Cookie", "s", "set-cookie", "t", "")
	f.Add("Link", "", "Link", "\x00", "Link, X")
	f.Add("bad name", "v", "Proxy-X", "v", "proxy-x")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, connection string) {
		h := http.Header{}
		h.Add(name1, value1)
		h[name2] = append(h[name2], value2)
		h.Set("Connection", connection)
		stored := storable(h, nil)
		for _, s := range stored {
			canonical := http.CanonicalHeaderKey(s.Name)
			if neverStored[canonical] || strings.HasPrefix(canonical, "Proxy-") || slices.Contains(connectionNamed(h), canonical) {
				t.Fatalf("stored %q", s.Name)
			}
		}
		kept, err := records.ParseHeaders(records.AppendHeaders(nil, stored))
		if err != nil || !slices.Equal(kept, stored) {
			t.Fatalf("stored form: %v, %v", kept, err)
		}
		// Twice: a replay changes nothing for the next one.
		first, second := http.Header{}, http.Header{}
		restore(first, kept)
		restore(second, kept)
		if !maps.EqualFunc(first, second, slices.Equal) {
			t.Fatalf("replays differ: %v, %v", first, second)
		}
		for name, values := range first {
			if len(values) != len(h[name]) || strings.ContainsAny(strings.Join(values, ""), "\r\n") {
				t.Fatalf("%q = %q, want %q", name, values, h[name])
			}
		}
		w := httptest.NewRecorder()
		restore(w.Header(), kept)
		writeStored(w, &records.Response{Status: 200, Headers: kept, Body: []byte("b")}, true)
		if w.Code != 200 || w.Body.String() != "b" {
			t.Fatalf("replay = %d %q", w.Code, w.Body)
		}
	})
}
