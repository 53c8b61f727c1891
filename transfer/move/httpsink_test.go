//go:build unix

package move_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
)

func TestHTTPSink(t *testing.T) {
	t.Parallel()

	t.Run("SendsOneRequestThatSaysWhoSendsIt", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		for _, n := range []int{0, 1, 300 << 10} {
			for _, method := range []string{http.MethodPut, http.MethodPost} {
				from.write(t, content(n))
				var got atomic.Pointer[received]
				s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(receive(r)) })
				mustCopy(t, job(from.source(), move.HTTPSink{
					URL: s.URL, Method: method, Transport: transport(t), Header: http.Header{"Authorization": {"Bearer T"}},
				}), content(n))
				r := got.Load()
				if r == nil || r.err != nil || !bytes.Equal(r.body, content(n)) {
					t.Fatalf("%s of %d bytes: received %+v", method, n, r)
				}
				if r.method != method || r.length != int64(n) || r.header.Get("Authorization") != "Bearer T" || r.header.Get("Idempotency-Epoch") != "10" {
					t.Errorf("%s, length %d, header %v", r.method, r.length, r.header)
				}
			}
		}
	})

	t.Run("IsNotWholeBeforeTheCommit", func(t *testing.T) {
		t.Parallel()
		for _, proto := range []int{1, 2} {
			for _, known := range []bool{true, false} {
				var got atomic.Pointer[received]
				to, tr := serveProto(t, proto, func(_ http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != proto {
						t.Errorf("HTTP/%d, want %d", r.ProtoMajor, proto)
					}
					got.Store(receive(r))
				})
				from := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if known {
						w.Header().Set("Content-Length", strconv.Itoa(1<<20))
					}
					_, _ = w.Write(content(1 << 20))
				})
				fenced := errors.New("fenced")
				j := job(move.HTTPSource{URL: from.URL, Transport: transport(t)}, move.HTTPSink{URL: to, Transport: tr})
				j.BeforeCommit = func(context.Context) error {
					if r := got.Load(); r != nil {
						t.Errorf("HTTP/%d, length known %v: the receiver had an end before the commit: %v", proto, known, r.err)
					}
					return fenced
				}
				if _, err := move.Copy(t.Context(), j); !errors.Is(err, fenced) {
					t.Errorf("error is %v", err)
				}
				await(t, "the receiver gives up", func() bool { return got.Load() != nil })
				if r := got.Load(); r.err == nil {
					t.Errorf("HTTP/%d, length known %v: the receiver took %d bytes for whole", proto, known, len(r.body))
				}
				j.BeforeCommit = nil
				mustCopy(t, j, content(1<<20))
				if r := got.Load(); r.err != nil || !bytes.Equal(r.body, content(1<<20)) {
					t.Errorf("HTTP/%d, length known %v: the receiver has %d bytes, %v", proto, known, len(r.body), r.err)
				}
			}
		}
	})

	t.Run("HoldsItsLastByteBack", func(t *testing.T) {
		t.Parallel()
		// What the transport is given; it may send every byte it has.
		for _, n := range []int64{1, 1000} {
			var given atomic.Int64
			sink := move.HTTPSink{URL: "http://host", Transport: roundTrip(func(q *http.Request) (*http.Response, error) {
				for b := make([]byte, 1); ; {
					k, err := q.Body.Read(b)
					given.Add(int64(k))
					if errors.Is(err, io.EOF) {
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: q}, nil
					}
					if err != nil {
						return nil, err
					}
				}
			})}
			for want, end := range map[int64]func(move.Part) error{
				n - 1: func(p move.Part) error { return p.Abort(t.Context()) },
				n:     func(p move.Part) error { return p.Commit(t.Context()) },
			} {
				given.Store(0)
				p, err := sink.Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "flow", Epoch: 1}, Length: n})
				if err != nil {
					t.Fatal(err)
				}
				_, err = p.Write(content(int(n)))
				if err := errors.Join(err, p.Seal(), end(p)); err != nil || given.Load() != want {
					t.Errorf("%d of %d bytes were given away, want %d, %v", given.Load(), n, want, err)
				}
			}
		}
	})

	t.Run("SaysWhyItWasRefusedMidway", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, content(32<<20))
		for status, kind := range map[int]error{401: move.ErrRefused, 404: move.ErrNotFound, 413: move.ErrTooLarge, 507: move.ErrSinkFull, 307: move.ErrRedirect} {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				if r.URL.Path == "/elsewhere" {
					t.Error("a redirect was followed")
				}
				w.WriteHeader(status)
			})
			wantFault(t, job(from.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)}), move.AtSink, kind)
		}
	})

	t.Run("SendsAgainWhatMayPass", func(t *testing.T) {
		t.Parallel()
		from, want := newFile(t), content(1<<20)
		from.write(t, want)
		var asked atomic.Int32
		var got atomic.Pointer[received]
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch asked.Add(1) {
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2:
				_ = receive(r)
				panic(http.ErrAbortHandler) // the answer is lost
			default:
				got.Store(receive(r))
			}
		})
		if r := mustCopy(t, job(from.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)}), want); r.Retries != 2 {
			t.Errorf("%d retries, want 2", r.Retries)
		}
		if r := got.Load(); r == nil || !bytes.Equal(r.body, want) {
			t.Error("the receiver does not have it")
		}
	})

	t.Run("SendsNoPostTwiceWithoutAKey", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, content(1000))
		var asked atomic.Int32
		s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_ = receive(r)
			if asked.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
		})
		sink := move.HTTPSink{URL: s.URL, Method: http.MethodPost, Transport: transport(t)}
		wantFault(t, job(from.source(), sink), move.AtSink, move.ErrUncertain)
		if asked.Load() != 1 {
			t.Errorf("sent %d times", asked.Load())
		}
		asked.Store(0)
		sink.Header = http.Header{"Idempotency-Key": {`"flow"`}}
		mustCopy(t, job(from.source(), sink), content(1000))
		if asked.Load() != 2 {
			t.Errorf("with a key sent %d times, want 2", asked.Load())
		}
	})

	t.Run("BelievesNoSuccessThatCameTooSoon", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, content(32<<20))
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		wantFault(t, job(from.source(), move.HTTPSink{URL: s.URL, Transport: transport(t)}), move.AtSink, move.ErrRefused)
	})

	t.Run("RefusesOtherMethods", func(t *testing.T) {
		t.Parallel()
		from := newFile(t)
		from.write(t, nil)
		wantFault(t, job(from.source(), move.HTTPSink{URL: "http://localhost", Method: "DELETE"}), move.AtSink, move.ErrRefused)
	})
}

// serveProto serves HTTP/1, or HTTP/2 over TLS, and returns what reaches it.
func serveProto(t *testing.T, proto int, h http.HandlerFunc) (string, *http.Transport) {
	t.Helper()
	tr := transport(t)
	if proto == 1 {
		return serve(t, h).URL, tr
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	t.Cleanup(tr.CloseIdleConnections)
	return s.URL, tr
}

// received is what a receiver made of a request.
type received struct {
	method string
	length int64
	header http.Header
	body   []byte
	err    error
}

func receive(r *http.Request) *received {
	b, err := io.ReadAll(r.Body)
	return &received{r.Method, r.ContentLength, r.Header, b, err}
}
