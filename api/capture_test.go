package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
)

// captureOf is a capture in front of a recorder.
func captureOf(limit int64) (*capture, *client, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	w.Header().Set("X-Outer", "1")
	c := &client{w: w}
	return newCapture(c, limit, func(h http.Header, _ int) { h.Set("X-Mark", "1") }), c, w
}

const (
	emptySum = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
	abcdSum  = "sha-256=:iNQmb9TmM40TuEX88olXnSCciXgjuSF9o+Fhk28DFYk=:" // of abcd
)

func TestCapture(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  int64
		handle func(w http.ResponseWriter)
		secret bool
		stored records.Response
		sent   string // to the client before the response is stored
	}{
		"KeepsUpToTheLimit": {
			limit: 4, handle: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "abcd") },
			stored: records.Response{Status: 200, Headers: []records.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}}, Body: []byte("abcd")},
		},
		"StreamsBeyondIt": {
			limit: 3, handle: func(w http.ResponseWriter) {
				w.Header().Set("Location", "/l")
				w.Header().Set("X-Lost", "1")
				w.WriteHeader(201)
				_, _ = io.WriteString(w, "ab")
				_, _ = io.WriteString(w, "cd")
			},
			stored: records.Response{Status: 201, Headers: []records.Header{{Name: "Location", Value: "/l"}, {Name: "Content-Length", Value: "4"}, {Name: headerDigest, Value: abcdSum}}},
			sent:   "abcd",
		},
		"StreamsFromAReader": {
			limit: 3, handle: func(w http.ResponseWriter) { _, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("abcd")) },
			stored: records.Response{Status: 200, Headers: []records.Header{{Name: "Content-Length", Value: "4"}, {Name: headerDigest, Value: abcdSum}}},
			sent:   "abcd",
		},
		"StreamsWhenFlushed": {
			limit: 9, handle: func(w http.ResponseWriter) {
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, "abcd")
			},
			stored: records.Response{Status: 200, Headers: []records.Header{{Name: "Content-Length", Value: "4"}, {Name: headerDigest, Value: abcdSum}}},
			sent:   "abcd",
		},
		"KeepsNoSecret": {
			limit: 9, handle: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "abcd") }, secret: true,
			stored: records.Response{Status: 200},
		},
		"KeepsAnEmptyBody": {
			limit: 9, handle: func(w http.ResponseWriter) { w.WriteHeader(204) },
			stored: records.Response{Status: 204, Headers: []records.Header{}, Body: []byte{}},
		},
		"TakesSilenceForAnEmpty200": {
			limit: 9, handle: func(http.ResponseWriter) {},
			stored: records.Response{Status: 200, Headers: []records.Header{}, Body: []byte{}},
		},
		"TakesTheFirstStatus": {
			limit: 9, handle: func(w http.ResponseWriter) {
				w.WriteHeader(202)
				w.WriteHeader(500)
				w.Header().Set("X-Late", "1")
			},
			stored: records.Response{Status: 202, Headers: []records.Header{}, Body: []byte{}},
		},
		"KeepsTooManyHeadersOut": {
			limit: 9, handle: func(w http.ResponseWriter) { w.Header().Set("X-Large", strings.Repeat("x", records.MaxHeaderBytes)) },
			stored: records.Response{Status: 200, Headers: []records.Header{{Name: "Content-Length", Value: "0"}, {Name: headerDigest, Value: emptySum}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, _, w := captureOf(c.limit)
			c.handle(u)
			u.close(true)
			if diff := cmp.Diff(c.stored, u.response(c.secret)); diff != "" {
				t.Error(diff)
			}
			if got := w.Body.String(); got != c.sent {
				t.Errorf("the client has %q, want %q", got, c.sent)
			}
			if u.kept() != (c.sent == "") {
				t.Errorf("kept: %t", u.kept())
			}
			if c.sent != "" && (w.Code != u.status || w.Header().Get("X-Mark") == "" || w.Header().Get("X-Outer") == "") {
				t.Errorf("the client has %d %v", w.Code, w.Header())
			}
		})
	}
	t.Run("WritesNothingAfterTheClientHasLeft", func(t *testing.T) {
		t.Parallel()
		u, c, w := captureOf(3)
		c.leave()
		for range 2 {
			if n, err := io.WriteString(u, "ab"); n != 2 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			if err := u.FlushError(); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := u.Hijack(); err == nil {
			t.Error("hijacked what is gone")
		}
		if _, err := u.Unwrap().Write([]byte("x")); err != nil {
			t.Error(err)
		}
		u.WriteHeader(103)
		u.close(true)
		if w.Body.Len() > 0 || u.size != 4 || len(w.Header()) != 1 {
			t.Errorf("the client has %q, %v", w.Body, w.Header())
		}
	})
	t.Run("OneClientHearsOneRun", func(t *testing.T) {
		t.Parallel()
		first, c, w := captureOf(0)
		second := newCapture(c, 0, first.mark)
		_, _ = io.WriteString(first, "one")
		_, _ = io.WriteString(second, "two")
		_, _ = io.WriteString(first, "more")
		if w.Body.String() != "onemore" {
			t.Errorf("the client has %q", w.Body)
		}
	})
	t.Run("RefusesWhatNetHTTPRefuses", func(t *testing.T) {
		t.Parallel()
		u, _, _ := captureOf(9)
		u.Header().Set("Content-Length", "1")
		if _, err := io.WriteString(u, "ab"); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("too long: %v", err)
		}
		u.close(true)
		if u.complete() {
			t.Error("a short response looks whole")
		}
		if _, err := io.WriteString(u, "a"); err == nil {
			t.Error("wrote after the handler had returned")
		}
		u, _, _ = captureOf(9)
		u.WriteHeader(204)
		if _, err := io.WriteString(u, "a"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("no body: %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("accepted status 0")
			}
		}()
		u.WriteHeader(0)
	})
}
