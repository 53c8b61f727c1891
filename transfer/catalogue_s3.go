package transfer

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/probate-dev/probate/transfer/move"
)

func (c *Catalogue) s3Source(e S3End) (move.Source, error) {
	s, err := move.NewS3(move.S3Config{
		Endpoint: e.Endpoint, Region: e.Region, AccessKey: e.AccessKey, SecretKey: e.SecretKey, Transport: c.transport,
	})
	if err != nil {
		return nil, err
	}
	return move.S3Source{Store: s, Bucket: e.Bucket, Key: e.Key}, nil
}

// s3Sink is the object that an address names, in a store that may be written
// to. The address may bring keys of its own; else the configured ones are used.
func (c *Catalogue) s3Sink(to *DataAddress) (move.Sink, error) {
	bucket, key := to.Property("bucketName"), cmp.Or(to.Property("keyName"), to.Property("objectName"))
	endpoint := cmp.Or(to.Endpoint, to.Property("endpointOverride"))
	if bucket == "" || key == "" {
		return nil, errors.New("dataAddress: want the properties bucketName and keyName")
	}
	for _, allowed := range c.Sinks.S3 {
		if endpoint != "" && endpoint != allowed.Endpoint || allowed.Bucket != "" && allowed.Bucket != bucket {
			continue
		}
		config := move.S3Config{
			Endpoint: allowed.Endpoint, Region: cmp.Or(to.Property("region"), allowed.Region),
			AccessKey: allowed.AccessKey, SecretKey: allowed.SecretKey, Transport: c.transport,
		}
		if id := to.Property("accessKeyId"); id != "" {
			config.AccessKey, config.SecretKey, config.SessionToken = id, to.Property("secretAccessKey"), to.Property("sessionToken")
		}
		s, err := move.NewS3(config)
		if err != nil {
			return nil, err
		}
		return move.S3Sink{Store: s, Bucket: bucket, Key: key, Exclusive: allowed.Exclusive}, nil
	}
	return nil, fmt.Errorf("dataAddress: bucket %q is in no store that this data plane may write to", bucket)
}
