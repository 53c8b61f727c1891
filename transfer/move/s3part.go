package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

// s3Part is a multipart upload.
type s3Part struct {
	sink  S3Sink
	ctx   context.Context
	start Start

	upload upload
	done   []minio.CompletePart
	held   int64 // bytes in done
	offset int64 // and in the part under way

	size int64 // of the part under way, or the room in the buffer

	// Length known: the part under way is a request that reads from a pipe.
	pipe   *io.PipeWriter
	wg     sync.WaitGroup
	sent   minio.ObjectPart
	failed error

	// Length not known: it is gathered here.
	buffer []byte
}

// create begins an upload. An upload whose id is not known can be neither kept
// nor taken away, so the answer is waited for a little even when the copy has
// ended: it is then ended like one that had come further.
func (p *s3Part) create(ctx context.Context) error {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(createGrace, cancel) })()
	id, err := p.sink.Store.core.NewMultipartUpload(detached, p.sink.Bucket, p.sink.Key, minio.PutObjectOptions{UserMetadata: meta(p.start.Identity)})
	if err != nil {
		return s3Fault(ctx, AtSink, err)
	}
	p.upload = upload{ID: id, Epoch: p.start.Epoch, PartSize: p.sink.partSize(p.start.Length)}
	p.next()
	return nil
}

// createGrace is how much longer than the copy its request for an upload lives.
const createGrace = 2 * time.Second

// resume goes on with an upload whose parts add up to the checkpoint. One of an
// older epoch is fenced first, which needs a part that its owner has not yet
// had at the checkpoint: its last one will do, and exists if the length is
// known to be larger.
func (p *s3Part) resume(u upload) (bool, error) {
	at, length := p.start.Resume.Offset, p.start.Length
	foreign := u.Epoch != p.start.Epoch
	if at == 0 || (foreign && at >= length) || (u.PartSize == 0) != (length < 0) {
		return false, nil
	}
	done, sum, err := p.list(u.ID, at)
	if code(err) == minio.NoSuchUpload {
		return false, nil
	}
	if err != nil {
		return false, s3Fault(p.ctx, AtSink, err)
	}
	if sum != at {
		return false, nil
	}
	if foreign {
		fence := []byte("epoch " + strconv.FormatInt(p.start.Epoch, 10))
		if _, err := p.put(u.ID, len(done)+1, bytes.NewReader(fence), int64(len(fence))); err != nil {
			return false, s3Fault(p.ctx, AtSink, err)
		}
	}
	p.upload, p.done, p.held, p.offset = u, done, sum, sum
	p.next()
	return true, nil
}

// list returns the first parts of an upload, up to the one that ends at limit.
func (p *s3Part) list(id string, limit int64) (done []minio.CompletePart, sum int64, err error) {
	for marker := 0; ; {
		l, err := p.sink.Store.core.ListObjectParts(p.ctx, p.sink.Bucket, p.sink.Key, id, marker, 1000)
		if err != nil {
			return nil, 0, err
		}
		for _, o := range l.ObjectParts {
			if o.PartNumber != len(done)+1 || sum+o.Size > limit {
				return done, sum, nil
			}
			done = append(done, minio.CompletePart{PartNumber: o.PartNumber, ETag: o.ETag})
			sum += o.Size
		}
		if !l.IsTruncated {
			return done, sum, nil
		}
		marker = l.NextPartNumberMarker
	}
}

// next says how long the next part will be.
func (p *s3Part) next() {
	switch {
	case p.upload.PartSize > 0:
		p.size = min(p.upload.PartSize, p.start.Length-p.offset)
	case len(p.done) < smallParts:
		p.size = smallestPart
	default:
		p.size = usualPart
	}
}

// Offset implements [Part].
func (p *s3Part) Offset() int64 { return p.offset }

// Room implements [Part].
func (p *s3Part) Room() int64 { return p.size - (p.offset - p.held) }

// Write implements [Part].
func (p *s3Part) Write(b []byte) (int, error) {
	switch {
	case int64(len(b)) > p.Room():
		return 0, fatal(AtSink, ErrLength, errors.New("write beyond the room of a part"))
	case len(b) == 0:
		return 0, nil
	case p.upload.PartSize == 0:
		if int64(cap(p.buffer)) < p.size {
			p.buffer = make([]byte, 0, p.size)
		}
		p.buffer = append(p.buffer, b...)
	default:
		if p.pipe == nil {
			p.stream()
		}
		if _, err := p.pipe.Write(b); err != nil {
			p.wg.Wait()
			return 0, p.fault(p.failed)
		}
	}
	p.offset += int64(len(b))
	return len(b), nil
}

// stream starts the request of a part.
func (p *s3Part) stream() {
	r, w := io.Pipe()
	number, size := len(p.done)+1, p.size
	p.pipe = w
	p.wg.Go(func() {
		defer r.CloseWithError(errAnswered)
		p.sent, p.failed = p.put(p.upload.ID, number, r, size)
	})
}

func (p *s3Part) put(id string, number int, r io.Reader, size int64) (minio.ObjectPart, error) {
	if number > mostParts {
		return minio.ObjectPart{}, fatal(AtSink, ErrTooLarge, fmt.Errorf("more than %d parts", mostParts))
	}
	return p.sink.Store.core.PutObjectPart(p.ctx, p.sink.Bucket, p.sink.Key, id, number, p.moving(r), size, minio.PutObjectPartOptions{})
}

// moving tells when the request reads, and stays seekable if r is, which is
// what lets the client send it again.
func (p *s3Part) moving(r io.Reader) io.Reader {
	m := &movingReader{ReadCloser: io.NopCloser(r), moved: p.start.moved}
	if s, ok := r.(io.Seeker); ok {
		return struct {
			io.Reader
			io.Seeker
		}{m, s}
	}
	return m
}

// Checkpoint implements [Part]. At the end of a part it waits until the store
// has it.
func (p *s3Part) Checkpoint() (Mark, error) {
	if p.offset > p.held && p.Room() == 0 {
		if err := p.flush(); err != nil {
			return Mark{}, err
		}
	}
	return Mark{Offset: p.held, Token: p.upload.token()}, nil
}

// flush ends the part under way.
func (p *s3Part) flush() error {
	if p.pipe != nil {
		p.pipe.CloseWithError(io.EOF)
		p.wg.Wait()
		p.pipe = nil
	} else {
		p.sent, p.failed = p.put(p.upload.ID, len(p.done)+1, bytes.NewReader(p.buffer), int64(len(p.buffer)))
		p.buffer = p.buffer[:0]
	}
	if p.failed != nil {
		return p.fault(p.failed)
	}
	p.done = append(p.done, minio.CompletePart{PartNumber: len(p.done) + 1, ETag: p.sent.ETag})
	p.held = p.offset
	p.next()
	return nil
}

// fault: if an upload that was taken over is gone or spoilt, its old owner did
// that and there is nobody newer; the copy begins again.
func (p *s3Part) fault(err error) error {
	err = s3Fault(p.ctx, AtSink, err)
	if errors.Is(err, ErrSuperseded) && p.upload.Epoch != p.start.Epoch {
		return transient(AtSink, ErrUnavailable, errors.New("upload ended by its former owner"))
	}
	return err
}

// Seal implements [Part]. S3 wants at least one part, if an empty one.
func (p *s3Part) Seal() error {
	if p.offset > p.held || len(p.done) == 0 {
		return p.flush()
	}
	return nil
}

// lastLook is how long may be looked whether a commit landed. It is short, for
// an owner that lost its lease has to come back.
const lastLook = 2 * time.Second

// Commit implements [Part]. If the store's answer is lost or an error, the
// object itself may tell that it was completed.
func (p *s3Part) Commit(ctx context.Context) error {
	core, s := p.sink.Store.core, p.sink
	_, err := core.CompleteMultipartUpload(ctx, s.Bucket, s.Key, p.upload.ID, p.done, minio.PutObjectOptions{})
	if err == nil {
		return nil
	}
	// Also when it was cancelled: what is there must not be called a failure.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	if s.landed(last, Identity{p.start.Flow, p.upload.Epoch}, p.offset) {
		return nil
	}
	if ctx.Err() != nil {
		return transient(AtSink, ErrUnavailable, context.Cause(ctx))
	}
	return p.fault(err)
}

// Abort implements [Part].
func (p *s3Part) Abort(ctx context.Context) error {
	p.stop()
	return p.sink.abort(ctx, p.upload.ID)
}

// Keep implements [Part].
func (p *s3Part) Keep() error {
	p.stop()
	return nil
}

// stop breaks the request under way. It has a length, so the store does not
// take what it got for a part.
func (p *s3Part) stop() {
	if p.pipe != nil {
		p.pipe.CloseWithError(errAborted)
		p.wg.Wait()
		p.pipe = nil
	}
}
