package move

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

// S3Source is an object.
type S3Source struct {
	Store       *S3
	Bucket, Key string
}

// Open implements [Source]. The validator is the object's ETag, so an object
// that is replaced meanwhile is read from zero.
func (s S3Source) Open(ctx context.Context, from int64, validator string) (*Body, error) {
	if validator == "" {
		from = 0
	}
	var o minio.GetObjectOptions
	if from > 0 {
		if err := errors.Join(o.SetRange(from, 0), o.SetMatchETag(validator)); err != nil {
			return nil, fatal(AtSource, ErrRefused, err)
		}
	}
	body, info, header, err := s.Store.core.GetObject(ctx, s.Bucket, s.Key, o)
	if err != nil && from > 0 {
		return s.refused(ctx, err, from, validator)
	}
	if err != nil {
		return nil, s3Fault(ctx, AtSource, err)
	}
	b := &Body{ReadCloser: body, Length: info.Size, Validator: info.ETag}
	if header.Get("Content-Range") != "" {
		at, total, ok := contentRange(header)
		if !ok || at != from || info.ETag != validator {
			body.Close()
			return s.Open(ctx, 0, "")
		}
		b.From, b.Length = from, total
	}
	return b, nil
}

// refused: the object is another one by now, or there is nothing after from.
func (s S3Source) refused(ctx context.Context, err error, from int64, validator string) (*Body, error) {
	switch minio.ToErrorResponse(err).StatusCode {
	case http.StatusPreconditionFailed:
		return s.Open(ctx, 0, "")
	case http.StatusRequestedRangeNotSatisfiable:
		info, err := s.Store.core.StatObject(ctx, s.Bucket, s.Key, minio.StatObjectOptions{})
		if err != nil {
			return nil, s3Fault(ctx, AtSource, err)
		}
		if info.Size != from || info.ETag != validator {
			return s.Open(ctx, 0, "")
		}
		return &Body{ReadCloser: io.NopCloser(strings.NewReader("")), From: from, Length: from, Validator: validator}, nil
	default:
		return nil, s3Fault(ctx, AtSource, err)
	}
}
