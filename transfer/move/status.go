package move

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Redirects of a source that are followed, one after the other.
const maxRedirects = 5

// statusFault says what a status means that is not the one hoped for.
func statusFault(at End, r *http.Response) error {
	f := &Fault{End: at, Kind: ErrRefused, Status: r.StatusCode, RetryAfter: parseRetryAfter(r.Header, time.Now())}
	switch s := r.StatusCode; {
	case s == http.StatusNotFound, s == http.StatusGone:
		f.Kind = ErrNotFound
	case s == http.StatusInsufficientStorage:
		f.Kind = ErrSinkFull
	case s == http.StatusRequestEntityTooLarge:
		f.Kind = ErrTooLarge
	case passes(s):
		f.Kind, f.Transient = ErrUnavailable, true
	case s >= 300 && s < 400:
		f.Kind = ErrRedirect
	}
	return f
}

// passes reports whether a status asks to come back.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusInsufficientStorage:
		return false
	default:
		return status >= 500
	}
}

// parseRetryAfter reads Retry-After (RFC 9110 10.2.3), in both its forms.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseInt(v, 10, 32); err == nil && s >= 0 {
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// contentRange reads Content-Range (RFC 9110 14.4): where the bytes begin, and
// how many there are in all, negative if that is not said.
func contentRange(h http.Header) (from, total int64, ok bool) {
	v, found := strings.CutPrefix(strings.TrimSpace(h.Get("Content-Range")), "bytes ")
	span, size, cut := strings.Cut(v, "/")
	if !found || !cut {
		return 0, 0, false
	}
	if total = -1; size != "*" {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil || n < 0 {
			return 0, 0, false
		}
		total = n
	}
	if span == "*" {
		return -1, total, total >= 0
	}
	first, last, cut := strings.Cut(span, "-")
	a, errA := strconv.ParseInt(first, 10, 64)
	b, errB := strconv.ParseInt(last, 10, 64)
	if !cut || errA != nil || errB != nil || a < 0 || b < a || (total >= 0 && b >= total) {
		return 0, 0, false
	}
	if total < 0 {
		total = b + 1 // what was asked for had no end, so this is the end
	}
	return a, total, true
}

// discard reads a little of a body nobody wants, so that its connection can be
// used again, and closes it.
func discard(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
	r.Body.Close()
}
