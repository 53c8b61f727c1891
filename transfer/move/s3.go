package move

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config says how to reach an S3-compatible store.
type S3Config struct {
	// Endpoint is its URL, such as https://s3.eu-central-1.amazonaws.com.
	Endpoint string
	// Region defaults to us-east-1, which is what stores that have none expect.
	Region string
	// AccessKey and SecretKey sign every request; SessionToken belongs to
	// temporary ones. All empty: requests are anonymous.
	AccessKey, SecretKey, SessionToken string
	// Transport is usually [NewTransport]. Nil: one that may dial anything.
	Transport http.RoundTripper
}

// S3 is a store. It is safe for concurrent use and holds nothing to be closed.
type S3 struct{ core *minio.Core }

// Requests that can be repeated from memory are, this often; the others are
// retried by Copy, which counts them.
const s3Tries = 3

// NewS3 checks c. It connects to nothing.
func NewS3(c S3Config) (*S3, error) {
	u, err := parseURL("", c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint: %w", err)
	}
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("s3 endpoint: has a path")
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken),
		Secure:       u.Scheme == "https",
		Region:       c.Region,
		BucketLookup: minio.BucketLookupPath,
		Transport:    transportOr(c.Transport),
		MaxRetries:   s3Tries,
	})
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint: %w", err)
	}
	return &S3{core}, nil
}

// s3Fault says what an error of the store means.
func s3Fault(ctx context.Context, at End, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return ioFault(ctx, at, err)
	}
	f := &Fault{End: at, Kind: ErrRefused, Status: e.StatusCode, Err: errors.New(e.Code)}
	switch e.Code {
	case minio.NoSuchKey, minio.NoSuchBucket, "NotFound":
		f.Kind = ErrNotFound
	case minio.NoSuchUpload, "InvalidPart", "EntityTooSmall":
		// Somebody else ended the upload, or put a part of theirs into it.
		f.Kind = ErrSuperseded
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "InsufficientCapacity":
		f.Kind = ErrSinkFull
	case "EntityTooLarge":
		f.Kind = ErrTooLarge
	case "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "SlowDownRead", "SlowDownWrite", "IncompleteBody":
		f.Kind, f.Transient = ErrUnavailable, true
	default:
		switch {
		case e.StatusCode == http.StatusNotFound:
			f.Kind = ErrNotFound
		case e.StatusCode == http.StatusInsufficientStorage:
			f.Kind = ErrSinkFull
		case passes(e.StatusCode), e.StatusCode == 0 && e.Code == "":
			f.Kind, f.Transient = ErrUnavailable, true
		}
	}
	return f
}

// code is the S3 error code in err, if there is one.
func code(err error) string {
	e, _ := errors.AsType[minio.ErrorResponse](err)
	return e.Code
}
