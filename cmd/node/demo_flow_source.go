package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// demoPace is how long the source takes for the whole file, so that there is
// something to see.
const demoPace = 5 * time.Second

// demoSource is an HTTP server with one file. It takes its time, and beyond the
// middle fifty times of it until it is released: however busy the machine, the
// owner is killed half way. It counts what it is asked for.
type demoSource struct {
	url    string
	sum    string
	script *script
	server *http.Server
	served sync.WaitGroup
	file   *os.File
	size   int64

	mu       sync.Mutex
	all      []*demoRead
	released bool
}

// openSource writes a file no part of which is like another, and serves it.
func openSource(ctx context.Context, s *script, name string, size int64) (*demoSource, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	o := &demoSource{script: s, file: file, size: size}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(file, h), rand.NewChaCha8([32]byte{}), size); err != nil {
		return nil, fmt.Errorf("write the source: %w", err)
	}
	o.sum = hex.EncodeToString(h.Sum(nil))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the source: %w", err)
	}
	o.url = "http://" + listener.Addr().String() + "/file.bin"
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	o.served.Go(func() { _ = o.server.Serve(listener) }) // until it is closed
	s.say("source", "has a file of %s at %s", megabytes(size), o.url)
	return o, nil
}

func (o *demoSource) close() {
	_ = o.server.Close()
	o.served.Wait()
	_ = o.file.Close()
}

// release lets the second half go as quickly as the first.
func (o *demoSource) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released = true
}

// reads are the requests for bytes so far.
func (o *demoSource) reads() []demoRead {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []demoRead
	for _, r := range o.all {
		all = append(all, *r)
	}
	return slices.Clip(all)
}

// ServeHTTP implements [http.Handler].
func (o *demoSource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"1"`) // so that it can be read on
	body := &pacedReader{gone: r.Context().Done(), SectionReader: io.NewSectionReader(o.file, 0, o.size), source: o}
	http.ServeContent(w, r, "", time.Time{}, body)
}

// pacedReader is one reading of the source.
type pacedReader struct {
	*io.SectionReader
	gone   <-chan struct{} // closed when nobody reads any more
	source *demoSource
	read   *demoRead // nil: not a byte yet
	next   time.Time // when there may be more
}

// Read implements [io.Reader].
func (p *pacedReader) Read(b []byte) (int, error) {
	if p.read == nil {
		p.begin()
	}
	for now := time.Now(); now.Before(p.next); now = time.Now() {
		select {
		case <-time.After(p.next.Sub(now)):
		case <-p.gone:
			return 0, context.Canceled
		}
	}
	n, err := p.SectionReader.Read(b)
	p.next = p.next.Add(p.source.note(p.read, n))
	return n, err
}

func (p *pacedReader) begin() {
	from, _ := p.Seek(0, io.SeekCurrent) // that of a section cannot fail
	p.read, p.next = &demoRead{From: from}, time.Now()
	p.source.mu.Lock()
	p.source.all = append(p.source.all, p.read)
	p.source.mu.Unlock()
	p.source.script.say("source", "is asked for the file, from byte %d on", from)
}

// note counts bytes, and says how long they take.
func (o *demoSource) note(r *demoRead, n int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Sent += int64(n)
	took := time.Duration(float64(demoPace) * float64(n) / float64(o.size))
	if !o.released && r.From+r.Sent > o.size/2 {
		took *= 50
	}
	return took
}
