//go:build unix

package move_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer/move"
)

func TestHTTPSource(t *testing.T) {
	t.Parallel()

	t.Run("ReadsOnWhereItBroke", func(t *testing.T) {
		t.Parallel()
		f, to := newFlaky(4<<20, 1<<20, 3), newFile(t)
		s := serve(t, f.ServeHTTP)
		r := mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), f.want)
		to.wantContent(t, f.want)
		if r.Retries != 3 || f.ranges.Load() != 3 {
			t.Errorf("%d retries and %d ranges, want 3", r.Retries, f.ranges.Load())
		}
		if sent := f.sent.Load(); sent > int64(len(f.want))+3*(1<<20) {
			t.Errorf("the source sent %d bytes", sent)
		}
	})

	for _, c := range []struct {
		name string
		set  func(*flaky)
	}{
		{"BeginsAgainWithoutAValidator", func(f *flaky) { f.etag.Store(nil) }},
		{"BeginsAgainWithAWeakETag", func(f *flaky) { f.etag.Store(new(`W/"one"`)) }},
		{"BeginsAgainWhereRangesAreUnknown", func(f *flaky) { f.plain = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, to := newFlaky(2<<20, 1<<20, 2), newFile(t)
			c.set(f)
			s := serve(t, f.ServeHTTP)
			r := mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), f.want)
			to.wantContent(t, f.want)
			to.wantNames(t, 1)
			if r.Retries != 2 {
				t.Errorf("%d retries, want 2", r.Retries)
			}
		})
	}

	t.Run("BeginsAgainWhenTheSourceIsAnother", func(t *testing.T) {
		t.Parallel()
		old, now, to := newFlaky(2<<20, 1<<20, 1), newFlaky(3<<20, 0, 0), newFile(t)
		now.etag.Store(new(`"two"`))
		now.want = bytes.Repeat([]byte("other"), 1<<19)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if old.asked.Load() == 0 {
				old.ServeHTTP(w, r)
				return
			}
			now.ServeHTTP(w, r)
		})
		mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), now.want)
		to.wantContent(t, now.want)
	})

	t.Run("BelievesNoRangeOfAnotherVersion", func(t *testing.T) {
		t.Parallel()
		// A server that ignores If-Range.
		var asked atomic.Int32
		want, to := content(1<<20), newFile(t)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				w.Header().Set("ETag", `"one"`)
				w.Header().Set("Content-Length", "2000000")
				_, _ = w.Write(make([]byte, 1<<19))
				panic(http.ErrAbortHandler)
			}
			r.Header.Del("If-Range")
			w.Header().Set("ETag", `"two"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(want))
		})
		mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), want)
		to.wantContent(t, want)
	})

	t.Run("BelievesNoRangeThatDoesNotFit", func(t *testing.T) {
		t.Parallel()
		// Servers that know ranges and nothing else.
		modified := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		for name, c := range map[string]struct{ header, value, length string }{
			"AnETagIsMissing":    {"ETag", `"one"`, "1048576"},
			"TheLengthIsAnother": {"Last-Modified", modified, "2000000"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int32
				want, to := content(1<<20), newFile(t)
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) == 1 {
						w.Header().Set(c.header, c.value)
						w.Header().Set("Content-Length", c.length)
						_, _ = w.Write(make([]byte, 1<<19))
						panic(http.ErrAbortHandler)
					}
					r.Header.Del("If-Range")
					http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(want))
				})
				mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), want)
				to.wantContent(t, want)
			})
		}
	})

	t.Run("ResumesByLastModified", func(t *testing.T) {
		t.Parallel()
		want, to := content(1<<20), newFile(t)
		var asked, ranges atomic.Int32
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			left := -1
			if asked.Add(1) == 1 {
				left = 1 << 19
			}
			if r.Header.Get("If-Range") == modified.Format(http.TimeFormat) {
				ranges.Add(1)
			}
			http.ServeContent(&breaking{w, left, new(atomic.Int64)}, r, "", modified, bytes.NewReader(want))
		})
		mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), want)
		to.wantContent(t, want)
		if ranges.Load() != 1 {
			t.Error("the rest was not asked for by Last-Modified")
		}
	})

	t.Run("RetriesWhatMayPass", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
			var asked atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) < 3 {
					w.WriteHeader(status)
					return
				}
				_, _ = io.WriteString(w, "whole")
			})
			to := newFile(t)
			if r := mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), []byte("whole")); r.Retries != 2 {
				t.Errorf("status %d: %d retries, want 2", status, r.Retries)
			}
		}
	})

	t.Run("GivesUpOnWhatWillNot", func(t *testing.T) {
		t.Parallel()
		for status, kind := range map[int]error{
			400: move.ErrRefused, 401: move.ErrRefused, 403: move.ErrRefused, 404: move.ErrNotFound, 410: move.ErrNotFound,
			204: move.ErrRefused, 206: move.ErrRefused, 304: move.ErrRedirect, 501: move.ErrRefused,
		} {
			var asked atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(status) })
			to := newFile(t)
			wantFault(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink()), move.AtSource, kind)
			to.wantNames(t, 0)
			if asked.Load() != 1 {
				t.Errorf("status %d: asked %d times", status, asked.Load())
			}
		}
	})

	t.Run("EndsWithTheLastFaultWhenNothingPassed", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int32
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(503) })
		_, err := move.Copy(t.Context(), job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, newFile(t).sink()))
		if f, ok := errors.AsType[*move.Fault](err); !ok || f.Status != 503 || !move.Transient(err) || asked.Load() != 3 {
			t.Errorf("asked %d times, error %v", asked.Load(), err)
		}
	})

	t.Run("WaitsAsLongAsItIsAsked", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int32
		var first, second atomic.Int64
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				first.Store(time.Now().UnixNano())
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			second.Store(time.Now().UnixNano())
		})
		mustCopy(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, newFile(t).sink()), nil)
		if waited := time.Duration(second.Load() - first.Load()); waited < time.Second {
			t.Errorf("asked again after %v, before Retry-After", waited)
		}
	})

	t.Run("FollowsRedirectsOnlyWithinTheirHost", func(t *testing.T) {
		t.Parallel()
		var auth atomic.Pointer[string]
		elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
			auth.Store(new(r.Header.Get("Authorization")))
			_, _ = io.WriteString(w, "elsewhere")
		})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/near":
				http.Redirect(w, r, "/here", http.StatusFound)
			case "/far":
				http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
			case "/round":
				http.Redirect(w, r, "/round", http.StatusFound)
			default:
				_, _ = io.WriteString(w, "here")
			}
		})
		src := move.HTTPSource{URL: s.URL + "/near", Transport: transport(t), Header: http.Header{"Authorization": {"Bearer T"}}}
		mustCopy(t, job(src, newFile(t).sink()), []byte("here"))
		src.URL = s.URL + "/round"
		wantFault(t, job(src, newFile(t).sink()), move.AtSource, move.ErrRedirect)
		src.URL = s.URL + "/far"
		wantFault(t, job(src, newFile(t).sink()), move.AtSource, move.ErrRedirect)
		if auth.Load() != nil {
			t.Fatal("another host was asked")
		}
		src.Redirect = func(to *url.URL) bool { return to.Hostname() == "localhost" }
		mustCopy(t, job(src, newFile(t).sink()), []byte("elsewhere"))
		if got := auth.Load(); got == nil || *got != "" {
			t.Errorf("another host was given Authorization %v", got)
		}
	})

	t.Run("DialsOnlyWhatIsAllowed", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("was reached") })
		refuse := move.NewTransport(func(a netip.AddrPort) error {
			if a.Addr().IsLoopback() {
				return errors.New("loopback")
			}
			return nil
		})
		t.Cleanup(refuse.CloseIdleConnections)
		at := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
		wantFault(t, job(move.HTTPSource{URL: at, Transport: refuse}, newFile(t).sink()), move.AtSource, move.ErrAddress)
		from := newFile(t)
		from.write(t, content(10))
		wantFault(t, job(from.source(), move.HTTPSink{URL: at, Transport: refuse}), move.AtSink, move.ErrAddress)
	})

	t.Run("RefusesURLsThatAreNone", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"", "ftp://host/x", "file:///etc/passwd", "http://", "http://user:secret@host/x", "http://[::1", "//host"} {
			_, err := move.Copy(t.Context(), job(move.HTTPSource{URL: u}, newFile(t).sink()))
			if !errors.Is(err, move.ErrRefused) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v", u, err)
			}
		}
	})

	t.Run("RefusesEncodedBytes", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("Accept-Encoding: %q", got)
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte{0x1f, 0x8b})
		})
		wantFault(t, job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, newFile(t).sink()), move.AtSource, move.ErrEncoded)
	})

	t.Run("BelievesNoEndThatMayBeABrokenConnection", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhole?")
			_ = rw.Flush()
		})
		to := newFile(t)
		j := job(move.HTTPSource{URL: s.URL, Transport: transport(t)}, to.sink())
		wantFault(t, j, move.AtSource, move.ErrUnframed)
		to.wantNames(t, 0)
		j.Length = new(int64(7)) // a byte is missing
		wantFault(t, j, move.AtSource, move.ErrUnavailable)
		to.wantNames(t, 0)
		j.Length = new(int64(6))
		mustCopy(t, j, []byte("whole?"))
		sum := sha256.Sum256([]byte("whole?"))
		j.Length, j.SHA256 = nil, sum[:]
		mustCopy(t, j, []byte("whole?"))
	})
}
