package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// A copy's buffers. Together they are what a copy holds in memory.
	bufferSize  = 256 << 10
	bufferCount = 4
	// A read that brings less is topped up, so that a source that trickles does
	// not make a thousand tiny writes.
	enough = 64 << 10
	// Below this, hashing is not worth waking another goroutine.
	worthSharing = 16 << 10
)

// chunk is what one read brought.
type chunk struct {
	buffer []byte
	n      int
	err    error
}

// pump moves bytes from body to the part until the body ends. Reading runs
// ahead by the free buffers; each buffer is hashed and written at once, so that
// after every one of them the hash is that of what was written.
func (c *copying) pump(src *guard, body *Body) error {
	if c.buffers == nil {
		c.buffers = make(chan []byte, bufferCount)
		for range bufferCount {
			c.buffers <- make([]byte, bufferSize)
		}
	}
	filled := make(chan chunk, bufferCount)
	shared := make(chan []byte)
	hashed := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { c.read(src, body, filled) })
	wg.Go(func() {
		for b := range shared {
			c.hash.Write(b)
			hashed <- struct{}{}
		}
	})
	err := c.drain(src.ctx, filled, func(b []byte) error {
		if len(b) < worthSharing {
			c.hash.Write(b)
			return c.write(b)
		}
		shared <- b
		err := c.write(b)
		<-hashed
		return err
	})
	src.stop()
	close(shared)
	wg.Wait()
	close(filled)
	for f := range filled {
		c.buffers <- f.buffer
	}
	return err
}

// read fills free buffers until the body ends or its life does.
func (c *copying) read(src *guard, body *Body, filled chan<- chunk) {
	for {
		var f chunk
		select {
		case <-src.ctx.Done():
			return
		case f.buffer = <-c.buffers:
		}
		src.enter()
		for f.err == nil && f.n < enough {
			var n int
			n, f.err = body.Read(f.buffer[f.n:])
			if n > 0 {
				src.moved()
			}
			f.n += n
		}
		src.leave()
		if f.err != nil && !errors.Is(f.err, io.EOF) {
			f.err = transient(AtSource, ErrUnavailable, because(src.ctx, f.err))
		}
		filled <- f // never blocks: it has room for every buffer there is
		if f.err != nil {
			return
		}
	}
}

// drain takes what was read, in order, until the end of the source.
func (c *copying) drain(ctx context.Context, filled <-chan chunk, take func([]byte) error) error {
	for {
		var f chunk
		select {
		case f = <-filled:
		case <-ctx.Done():
			// The reader has ended without a word, or is about to hand over
			// why: either way there is nothing more to write.
			return transient(AtSource, ErrUnavailable, context.Cause(ctx))
		}
		err := c.pieces(f.buffer[:f.n], take)
		c.buffers <- f.buffer
		switch {
		case err != nil:
			return err
		case errors.Is(f.err, io.EOF):
			return c.whole()
		case f.err != nil:
			return f.err
		}
	}
}

// pieces hands b over in pieces that the part has room for.
func (c *copying) pieces(b []byte, take func([]byte) error) error {
	if err := c.fits(int64(len(b))); err != nil {
		return err
	}
	for len(b) > 0 {
		n := len(b)
		if room := c.part.Room(); room >= 0 {
			n = int(min(int64(n), room))
		}
		if n > 0 {
			if err := take(b[:n]); err != nil {
				return c.lose(err)
			}
			c.offset += int64(n)
			c.highest = max(c.highest, c.offset)
			b = b[n:]
			c.job.Progress(c.offset)
		}
		if err := c.mark(c.sink.ctx, c.part.Room() == 0); err != nil {
			return err
		}
	}
	return nil
}

// write is one Write under the sink's guard.
func (c *copying) write(b []byte) error {
	c.sink.enter()
	defer c.sink.leave()
	_, err := c.part.Write(b)
	return err
}

// fits refuses bytes that are too many, before they are written.
func (c *copying) fits(more int64) error {
	total := c.offset + more
	if limit := c.job.MaxBytes; limit > 0 && total > limit {
		return fatal(AtSource, ErrTooLarge, fmt.Errorf("more than %d bytes", limit))
	}
	if want := c.expected(); want >= 0 && total > want {
		return fatal(AtSource, ErrLength, fmt.Errorf("more than the expected %d bytes", want))
	}
	return nil
}

// whole checks the end of the source against every length that was named. An
// end that came before the announced one is a broken connection.
func (c *copying) whole() error {
	switch want := c.expected(); {
	case want < 0 || want == c.offset:
		return nil
	case c.length >= 0 || c.unframed:
		return transient(AtSource, ErrUnavailable, fmt.Errorf("%d of %d bytes: %w", c.offset, want, io.ErrUnexpectedEOF))
	default:
		return fatal(AtSource, ErrLength, fmt.Errorf("%d bytes, %d declared", c.offset, want))
	}
}

// mark makes a checkpoint if the part needs one, or if one is due, and saves
// it when that is due. What the sink has begun under a new name is saved at
// once: nobody else could find it.
func (c *copying) mark(ctx context.Context, needed bool) error {
	due := c.job.Save != nil && time.Since(c.saved) >= c.job.SaveEvery
	if !needed && !due {
		return nil
	}
	c.sink.enter()
	m, err := c.part.Checkpoint()
	c.sink.leave()
	if err != nil {
		return c.lose(err)
	}
	c.token = m.Token
	if m.Offset == c.offset && (m.Offset > 0 || m.Token != "") {
		c.point = &Checkpoint{Offset: m.Offset, Hash: state(c.hash), Validator: c.validator, Length: c.length, Token: m.Token, Landing: c.landing}
		c.dirty = true
	}
	if c.job.Save == nil || !c.dirty || (!due && m.Token == c.stored) {
		return nil
	}
	if err := c.job.Save(ctx, *c.point); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	c.saved, c.stored, c.dirty = time.Now(), m.Token, false
	return nil
}
