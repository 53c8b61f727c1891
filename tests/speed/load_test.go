//go:build unix

package speed_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	payment = `{"amount":1250,"currency":"EUR","source":"card_42","reference":"order 7 of 2026"}`
	keySize = 20 // every key is as long, so that a request is made by overwriting it
)

// keyOf is a key of the right length.
func keyOf(prefix byte, n int64) string { return fmt.Sprintf("%c-%0*x", prefix, keySize-2, n) }

// stream is a kept connection that carries one request after the other. The
// request is bytes made beforehand; of the response only what says how long it
// is and whether it is the right one is read.
type stream struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	key     []byte // within request; nil: it carries none
	head    []byte
}

func dial(ctx context.Context, address string, keyed bool) (*stream, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn, in: bufio.NewReaderSize(conn, 2048)}
	line := ""
	if keyed {
		line = "Idempotency-Key: " + keyOf('0', 0) + "\r\n"
	}
	s.request = fmt.Appendf(nil, "POST /orders/7/payments HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer of-alice\r\n"+
		"User-Agent: speed/1\r\nAccept: application/json\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		address, line, len(payment), payment)
	if at := bytes.Index(s.request, []byte(keyOf('0', 0))); at >= 0 {
		s.key = s.request[at : at+keySize]
	}
	return s, nil
}

// send writes the request under a key.
func (s *stream) send(key string) error {
	copy(s.key, key)
	_, err := s.conn.Write(s.request)
	return err
}

var contentLength = []byte("Content-Length: ")

// receive reads one response to its end, and returns its head.
func (s *stream) receive() (head []byte, err error) {
	s.head = s.head[:0]
	length := -1
	for {
		line, err := s.in.ReadSlice('\n')
		if err != nil {
			return nil, fmt.Errorf("read response: %w", err)
		}
		s.head = append(s.head, line...)
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, fmt.Errorf("a response without its length: %s", s.head)
	}
	_, err = s.in.Discard(length)
	return s.head, err
}

// exchange sends and receives, and checks that the answer is 201 and has the
// header line that is wanted.
func (s *stream) exchange(key string, want []byte) error {
	if err := s.send(key); err != nil {
		return err
	}
	head, err := s.receive()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 201 ")) || !bytes.Contains(head, want) {
		return fmt.Errorf("want 201 and %q, got\n%s", want, head)
	}
	return nil
}

// generator keeps so many requests in flight at one server.
type generator struct {
	streams []*stream
	key     func() string // of the next request
	want    []byte        // in the head of every response
}

// aim connects a generator to host:port.
func aim(t testing.TB, address string, inFlight int, key func() string, want string) *generator {
	t.Helper()
	g := &generator{key: key, want: []byte(want)}
	for range inFlight {
		s, err := dial(t.Context(), address, key() != "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.conn.Close() })
		g.streams = append(g.streams, s)
	}
	return g
}

// run sends for so long and returns how many requests a second were answered.
func (g *generator) run(t testing.TB, d time.Duration) float64 {
	t.Helper()
	var answered atomic.Int64
	var workers sync.WaitGroup
	begun := time.Now()
	for _, s := range g.streams {
		workers.Go(func() {
			n := int64(0)
			defer func() { answered.Add(n) }()
			for n == 0 || time.Since(begun) < d {
				if err := s.exchange(g.key(), g.want); err != nil {
					if !errors.Is(err, io.EOF) || t.Context().Err() == nil {
						t.Error(err)
					}
					return
				}
				n++
			}
		})
	}
	workers.Wait()
	return float64(answered.Load()) / time.Since(begun).Seconds()
}

func noKey() string { return "" }

// oneKey is always the same.
func oneKey(n int64) func() string {
	key := keyOf('r', n)
	return func() string { return key }
}

// freshKeys are never the same.
func freshKeys() func() string {
	var n atomic.Int64
	return func() string { return keyOf('f', n.Add(1)) }
}
