package move

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Landing is what the bytes are that are about to get their final name. It is
// saved before they do, so that the next owner of a copy whose owner died right
// after its commit can see that nothing is left to be done.
type Landing struct {
	Bytes  int64  `json:"bytes"`
	SHA256 []byte `json:"sha256"`
}

// Lander is a [Sink] that can tell whether a landing took place. Behind
// [HTTPSink] nobody can, so there a copy whose owner died in that moment is
// made again.
type Lander interface {
	// Landed reports whether what stands under the final name are the bytes of
	// the landing. The token is that of the checkpoint it was saved with. An
	// error, as all, is transient or not.
	Landed(ctx context.Context, id Identity, token string, l Landing) (bool, error)
}

var (
	_ Lander = FileSink{}
	_ Lander = S3Sink{}
)

// landed looks whether an earlier owner's commit took place, and takes away
// what it has left besides. If that cannot be found out, the copy is made again:
// the commit replaces what is there by the same.
func (c *copying) landed(ctx context.Context) bool {
	p := c.job.Resume
	sink, can := c.job.Sink.(Lander)
	if p == nil || p.Landing == nil || !can || len(p.Landing.SHA256) != sha256.Size {
		return false
	}
	if is, err := sink.Landed(ctx, c.job.Identity, p.Token, *p.Landing); err != nil || !is {
		return false
	}
	// What cannot be taken away has a name that nobody reads.
	_ = c.job.Sink.Discard(ctx, c.job.Identity, p.Token)
	c.offset = p.Landing.Bytes
	c.result.SHA256, c.result.ResumedFrom = [sha256.Size]byte(p.Landing.SHA256), c.offset
	return true
}

// land saves what is about to be committed.
func (c *copying) land(ctx context.Context, sum [sha256.Size]byte) error {
	if _, can := c.job.Sink.(Lander); !can || c.job.Save == nil {
		return nil
	}
	p := Checkpoint{Length: -1, Token: c.token}
	if c.point != nil {
		p = *c.point
	}
	c.landing = &Landing{Bytes: c.offset, SHA256: sum[:]}
	p.Landing = c.landing
	if err := c.job.Save(ctx, p); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// Landed implements [Lander]: the bytes themselves tell. Their owner may have
// died before their name was durable, or somebody else may have put them there.
func (s FileSink) Landed(ctx context.Context, _ Identity, _ string, l Landing) (bool, error) {
	root, dir, err := s.open(false)
	if err != nil {
		return false, err
	}
	defer shut(root, dir)
	name := filepath.Base(s.Path)
	info, err := dir.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != l.Bytes {
		return false, fileFault(AtSink, err)
	}
	f, err := dir.Open(name)
	if err != nil {
		return false, fileFault(AtSink, err)
	}
	defer shut(f)
	h, b := sha256.New(), make([]byte, bufferSize)
	for {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		n, err := f.Read(b)
		h.Write(b[:n])
		switch {
		case errors.Is(err, io.EOF) && !bytes.Equal(h.Sum(nil), l.SHA256):
			return false, nil
		case errors.Is(err, io.EOF):
			if err := f.Sync(); err != nil {
				return false, fileFault(AtSink, err)
			}
			err = (&filePart{root: root, path: s.Path}).syncFolders()
			return err == nil, err
		case err != nil:
			return false, fileFault(AtSink, err)
		}
	}
}

// Landed implements [Lander]: the object is marked by the upload that made it.
func (s S3Sink) Landed(ctx context.Context, id Identity, token string, l Landing) (bool, error) {
	u, ok := parseUpload(token)
	return ok && s.landed(ctx, Identity{id.Flow, u.Epoch}, l.Bytes), nil
}
