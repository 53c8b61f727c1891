package probe_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// relay forwards the bytes of HTTP/2 connections to one address, until it is
// told to swallow them. It counts the header frames that came back, so that a
// test knows which answers have begun.
type relay struct {
	url     string
	swallow atomic.Bool
	headers atomic.Int64
}

func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	l := listen(t)
	r := &relay{url: "http://" + l.Addr().String()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				near.Close()
				continue
			}
			context.AfterFunc(ctx, func() {
				near.Close()
				far.Close()
			})
			wg.Go(func() { r.copy(far, near, nil) })
			wg.Go(func() { r.copy(near, far, &frames{headers: &r.headers}) })
		}
	})
	return r
}

// copy closes the other side when its own has ended. A swallowed connection
// stays open and silent.
func (r *relay) copy(to, from net.Conn, count *frames) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		switch {
		case r.swallow.Load() && err != nil:
			return
		case r.swallow.Load():
			continue
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			if count != nil {
				count.read(b[:n])
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// frames reads the frames of one direction of an HTTP/2 connection (RFC 9113
// section 4.1).
type frames struct {
	headers *atomic.Int64
	head    []byte // of the frame that is arriving
	rest    int    // bytes of its payload that are still to come
}

func (f *frames) read(b []byte) {
	for len(b) > 0 {
		if f.rest > 0 {
			n := min(f.rest, len(b))
			f.rest -= n
			b = b[n:]
			continue
		}
		n := min(9-len(f.head), len(b))
		f.head = append(f.head, b[:n]...)
		b = b[n:]
		if len(f.head) < 9 {
			return
		}
		f.rest = int(binary.BigEndian.Uint32(f.head[:4]) >> 8)
		if f.head[3] == 1 {
			f.headers.Add(1)
		}
		f.head = f.head[:0]
	}
}
