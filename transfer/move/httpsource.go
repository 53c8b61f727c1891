package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// HTTPSource is what a GET returns.
type HTTPSource struct {
	// URL is http or https, without credentials.
	URL string
	// Header is sent with the request, such as Authorization.
	Header http.Header
	// Transport is usually [NewTransport]. Nil: one that may dial anything.
	Transport http.RoundTripper
	// Redirect says whether a redirect to another scheme, host or port may be
	// followed; within one origin it always is. Nil: it may not. Authorization
	// and cookies never go to another host, other headers do.
	Redirect func(to *url.URL) bool
}

// Open implements [Source].
//
// The validator is a strong ETag, or a Last-Modified that is older than the
// answer, with which the rest is asked for by Range and If-Range (RFC 9110
// 13.1.5). A server that answers 200, or with a range of something else, has
// its bytes read from zero.
func (s HTTPSource) Open(ctx context.Context, from int64, validator string) (*Body, error) {
	if validator == "" {
		from = 0
	}
	r, err := s.ask(ctx, from, validator)
	if err != nil {
		return nil, err
	}
	b, err := s.read(r, from, validator)
	if b != nil && err == nil {
		return b, nil
	}
	r.Body.Close()
	if err != nil || from == 0 {
		return nil, err
	}
	return s.Open(ctx, 0, "")
}

// ask sends the request.
func (s HTTPSource) ask(ctx context.Context, from int64, validator string) (*http.Response, error) {
	u, err := parseURL(AtSource, s.URL)
	if err != nil {
		return nil, err
	}
	q := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: headerOf(s.Header)}).WithContext(ctx)
	q.Header.Set("Accept-Encoding", "identity")
	if from > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		q.Header.Set("If-Range", validator)
	}
	c := &http.Client{Transport: transportOr(s.Transport), CheckRedirect: s.checkRedirect}
	r, err := c.Do(q)
	if err != nil {
		return nil, ioFault(ctx, AtSource, err)
	}
	return r, nil
}

func (s HTTPSource) checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	same := next.URL.Scheme == first.Scheme && next.URL.Host == first.Host
	switch {
	case len(via) > maxRedirects:
		return fatal(AtSource, ErrRedirect, fmt.Errorf("more than %d", maxRedirects))
	case next.URL.User != nil:
		return fatal(AtSource, ErrRedirect, errors.New("to a URL with credentials in it"))
	case !same && (s.Redirect == nil || !s.Redirect(next.URL)):
		return fatal(AtSource, ErrRedirect, fmt.Errorf("to %s://%s", next.URL.Scheme, next.URL.Host))
	}
	return nil
}

// read makes a body of an answer. Neither a body nor an error: the rest cannot
// be had, ask for everything.
func (s HTTPSource) read(r *http.Response, from int64, validator string) (*Body, error) {
	if !identity(r.Header) {
		return nil, fatal(AtSource, ErrEncoded, fmt.Errorf("content-encoding %q", r.Header.Get("Content-Encoding")))
	}
	b := &Body{ReadCloser: r.Body, Length: r.ContentLength, Validator: validatorOf(r.Header)}
	switch r.StatusCode {
	case http.StatusOK:
		b.Unframed = r.ContentLength < 0 && r.ProtoMajor < 2 && !slices.Contains(r.TransferEncoding, "chunked")
		return b, nil
	case http.StatusPartialContent:
		at, total, ok := contentRange(r.Header)
		if from == 0 || !ok || at != from || !goesOn(r.Header, validator) {
			return nil, unasked(from)
		}
		b.From, b.Length, b.Validator = from, total, validator
		return b, nil
	case http.StatusRequestedRangeNotSatisfiable:
		_, total, ok := contentRange(r.Header)
		if from == 0 || !ok || total != from || !sameVersion(b.Validator, validator) {
			return nil, unasked(from)
		}
		// Everything is there already.
		r.Body.Close()
		return &Body{ReadCloser: io.NopCloser(strings.NewReader("")), From: from, Length: total, Validator: validator}, nil
	}
	return nil, statusFault(AtSource, r)
}

// unasked is what a range means that was not asked for: an error if none was.
func unasked(from int64) error {
	if from > 0 {
		return nil
	}
	return fatal(AtSource, ErrRefused, errors.New("a range that nobody asked for"))
}

// goesOn reports whether a range is of the version that was asked for. Where
// there is an entity tag a range must carry it (RFC 9110 15.3.7), so one without
// comes from a server that may not know If-Range either. Last-Modified may be
// left out.
func goesOn(h http.Header, sent string) bool {
	if strings.HasPrefix(sent, `"`) {
		return h.Get("ETag") == sent
	}
	modified := h.Get("Last-Modified")
	return modified == "" || modified == sent
}

// sameVersion compares the validator of an answer without content with the one
// that was sent. Errors often carry none.
func sameVersion(answered, sent string) bool {
	return answered == "" || answered == sent || strings.HasPrefix(sent, `"`) != strings.HasPrefix(answered, `"`)
}

func identity(h http.Header) bool {
	for _, v := range h.Values("Content-Encoding") {
		for e := range strings.SplitSeq(v, ",") {
			if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "identity") {
				return false
			}
		}
	}
	return true
}

// validatorOf returns what If-Range may be sent with: a strong ETag, or a
// Last-Modified that is strong because the answer is younger by a second or
// more (RFC 9110 8.8.2.2).
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); len(tag) > 2 && tag[0] == '"' && tag[len(tag)-1] == '"' {
		return tag
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	date, errDate := http.ParseTime(h.Get("Date"))
	if err != nil || errDate != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return h.Get("Last-Modified")
}

// anywhere is the transport of ends that were given none.
var anywhere = NewTransport(nil)

func transportOr(t http.RoundTripper) http.RoundTripper {
	if t == nil {
		return anywhere
	}
	return t
}
