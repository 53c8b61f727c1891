//go:build unix

package flows_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// source is an HTTP server with one thing to read at any path. It hands out
// bytes as far as it is allowed to, so a test can stop a copy anywhere.
type source struct {
	url  string
	data []byte

	mu      sync.Mutex
	opens   int   // requests that were answered with bytes
	resumed int   // of these, those that began further on
	sent    int64 // bytes in all
	reading int   // requests under way
	limit   int   // bytes that may be handed out
	more    chan struct{}
	dies    int // requests break off after so many bytes; 0: they do not
	forgets bool
}

// newSource makes a source of n bytes that nobody could guess.
func newSource(t testing.TB, n int) *source {
	t.Helper()
	s := &source{data: make([]byte, n), limit: n, more: make(chan struct{})}
	chaos := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = chaos.Read(s.data) // it never fails
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		s.allow(n)
		server.Close()
	})
	s.url = server.URL
	return s
}

func (s *source) sum() string {
	sum := sha256.Sum256(s.data)
	return hex.EncodeToString(sum[:])
}

// allow lets bytes be handed out, up to n.
func (s *source) allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
	close(s.more)
	s.more = make(chan struct{})
}

// breakAfter makes every request break off after so many bytes.
func (s *source) breakAfter(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dies = n
}

// forgetful makes the source one that cannot begin anywhere but at zero.
func (s *source) forgetful() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets = true
}

// counts are what was asked of it so far.
func (s *source) counts() (opens, resumed int, sent int64, reading int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.resumed, s.sent, s.reading
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	forgets := s.forgets
	s.mu.Unlock()
	etag := fmt.Sprintf(`"v-%d"`, len(s.data))
	if !forgets {
		w.Header().Set("ETag", etag)
		w.Header().Set("Accept-Ranges", "bytes")
	}
	from := 0
	if spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && r.Header.Get("If-Range") == etag && !forgets {
		from, _ = strconv.Atoi(strings.TrimSuffix(spec, "-"))
	}
	s.mu.Lock()
	dies := s.dies
	s.opens++
	s.reading++
	if from > 0 {
		s.resumed++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading--
	}()
	w.Header().Set("Content-Length", strconv.Itoa(len(s.data)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(s.data)-1, len(s.data)))
		w.WriteHeader(http.StatusPartialContent)
	}
	s.pour(w, r, from, dies)
}

// pour writes what may be handed out, and waits for more.
func (s *source) pour(w http.ResponseWriter, r *http.Request, from, dies int) {
	for at := from; at < len(s.data); {
		s.mu.Lock()
		limit, more := s.limit, s.more
		s.mu.Unlock()
		if at >= limit {
			select {
			case <-more:
				continue
			case <-r.Context().Done():
				return
			}
		}
		end := min(limit, at+64<<10)
		n, err := w.Write(s.data[at:end])
		s.mu.Lock()
		s.sent += int64(n)
		s.mu.Unlock()
		if err != nil {
			return
		}
		if at += n; dies > 0 && at-from >= dies {
			panic(http.ErrAbortHandler)
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
}

// sink is an HTTP server that takes PUTs. It shows what came whole, and counts.
type sink struct {
	url string

	mu     sync.Mutex
	bodies map[string][]byte // by path, whole ones
	auth   string            // of the last request
}

func newSink(t testing.TB) *sink {
	t.Helper()
	s := &sink{bodies: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.auth = r.Header.Get("Authorization")
	s.mu.Unlock()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		return // it broke off
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies[r.URL.Path] = b.Bytes()
	w.WriteHeader(http.StatusCreated)
}

// got is what stands at a path, and what the last request came with.
func (s *sink) got(path string) (body []byte, auth string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[path], s.auth
}

// within fails the test unless a condition comes true in a while that no
// healthy run needs.
func within(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within a minute: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
