package move

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/minio/minio-go/v7"
)

// S3Sink is an object.
//
// The bytes go into a multipart upload, which shows nothing until it is
// completed and is aborted if the copy fails. With a known length each part is
// streamed as it comes; without one it is gathered in memory first, since S3
// wants to know the length of a part beforehand.
//
// The upload's id is in the checkpoint, which is saved before the first byte
// is sent. A newer epoch aborts the upload of the older one, or goes on with
// it. In that case it first puts a part of its own where the older owner would
// go on: that owner's list of parts is then no longer true, and the store
// refuses to complete it. An owner that finds itself fenced must therefore
// keep its part ([Job.Keep]), for it may be the successor's by now.
type S3Sink struct {
	Store       *S3
	Bucket, Key string
	// PartSize is that of the parts of an object whose length is known, from 5
	// MiB. Default 16 MiB, or more where 10,000 parts would not be enough.
	PartSize int64
	// Exclusive: nobody else uploads to this key in parts, so that whatever
	// upload is found there is left over from this flow, and is aborted. It
	// closes the gap of a process that was killed before it could save the id.
	Exclusive bool
}

const (
	smallestPart = 5 << 20 // the least that S3 takes, but for the last part
	usualPart    = 16 << 20
	mostParts    = 10_000
	// Parts of an object of unknown length are small at first.
	smallParts = 2_000

	metaFlow  = "Probate-Flow"
	metaEpoch = "Probate-Epoch"
)

// upload is a checkpoint's token.
type upload struct {
	ID       string `json:"upload"`
	Epoch    int64  `json:"epoch"`
	PartSize int64  `json:"part_size"` // 0: length not known
}

func (u upload) token() string {
	b, err := json.Marshal(u)
	if err != nil {
		panic("move: token of an upload: " + err.Error())
	}
	return string(b)
}

func parseUpload(token string) (u upload, ok bool) {
	err := json.Unmarshal([]byte(token), &u)
	return u, err == nil && u.ID != ""
}

// Begin implements [Sink].
func (s S3Sink) Begin(ctx context.Context, start Start) (Part, error) {
	p := &s3Part{sink: s, ctx: ctx, start: start}
	if start.Resume != nil {
		old, ok := parseUpload(start.Resume.Token)
		if ok && old.Epoch > start.Epoch {
			return nil, fatal(AtSink, ErrSuperseded, nil)
		}
		if ok {
			if resumed, err := p.resume(old); err != nil || resumed {
				return p, err
			}
			if err := s.abort(ctx, old.ID); err != nil {
				return nil, err
			}
		}
	}
	if s.Exclusive {
		if err := s.abortAll(ctx); err != nil {
			return nil, err
		}
	}
	return p, p.create(ctx)
}

// Discard implements [Sink].
func (s S3Sink) Discard(ctx context.Context, id Identity, token string) error {
	if u, ok := parseUpload(token); ok && u.Epoch <= id.Epoch {
		if err := s.abort(ctx, u.ID); err != nil {
			return err
		}
	}
	if s.Exclusive {
		return s.abortAll(ctx)
	}
	return nil
}

// abort ends an upload that may have ended already.
func (s S3Sink) abort(ctx context.Context, id string) error {
	err := s.Store.core.AbortMultipartUpload(ctx, s.Bucket, s.Key, id)
	if code(err) == minio.NoSuchUpload {
		return nil
	}
	return s3Fault(ctx, AtSink, err)
}

// abortAll ends every upload under the key.
func (s S3Sink) abortAll(ctx context.Context) error {
	var key, id string
	for {
		l, err := s.Store.core.ListMultipartUploads(ctx, s.Bucket, s.Key, key, id, "", 1000)
		if err != nil {
			return s3Fault(ctx, AtSink, err)
		}
		var faults []error
		for _, u := range l.Uploads {
			if u.Key == s.Key { // the others only begin with it
				faults = append(faults, s.abort(ctx, u.UploadID))
			}
		}
		if err := errors.Join(faults...); err != nil || !l.IsTruncated {
			return err
		}
		key, id = l.NextKeyMarker, l.NextUploadIDMarker
	}
}

// partSize is that of an object of length bytes, 0 if that is not known.
func (s S3Sink) partSize(length int64) int64 {
	if length < 0 {
		return 0
	}
	size := max(s.PartSize, smallestPart)
	if s.PartSize == 0 {
		size = usualPart
	}
	least := (length + mostParts - 1) / mostParts
	return max(size, (least+1<<20-1)>>20<<20)
}

// meta marks the object, so that a commit whose answer was lost can be told
// from one that never happened.
func meta(id Identity) map[string]string {
	return map[string]string{metaFlow: family(id.Flow), metaEpoch: strconv.FormatInt(id.Epoch, 10)}
}

// landed reports whether what stands under the key is what this upload was to
// become.
func (s S3Sink) landed(ctx context.Context, id Identity, length int64) bool {
	o, err := s.Store.core.StatObject(ctx, s.Bucket, s.Key, minio.StatObjectOptions{})
	if err != nil || o.Size != length {
		return false
	}
	for k, want := range meta(id) {
		if o.UserMetadata[k] != want {
			return false
		}
	}
	return true
}
