package transfer

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Sources says which sources a message may name by itself, for a dataset that
// is not listed: as metadata.source, a URL such as http://host/path,
// file://ROOT/path or s3://bucket/key. Empty: none.
type Sources struct {
	// HTTP are beginnings of the addresses that may be read; "*" is any.
	HTTP []string
	// Roots are the names of those that may be read from.
	Roots []string
	// S3 are the stores that may be read from; an empty bucket is any of that
	// store. Their keys are of no account.
	S3 []S3End
}

// none reports whether nothing may be named.
func (s Sources) none() bool { return len(s.HTTP)+len(s.Roots)+len(s.S3) == 0 }

// checkSources reports what cannot work.
func (c *Catalogue) checkSources(fault func(format string, args ...any)) {
	for _, base := range c.Sources.HTTP {
		if base == "*" {
			continue
		}
		if err := checkURL(base); err != nil || base == "" {
			fault("sources.http: %q: want an absolute URL over http or https, or *", base)
		}
	}
	for _, name := range c.Sources.Roots {
		if c.roots[name].Name == "" {
			fault("sources.roots: there is no root %q", name)
		}
	}
	for _, s := range c.Sources.S3 {
		if err := checkURL(s.Endpoint); err != nil || s.Endpoint == "" {
			fault("sources.s3: want an endpoint")
		}
	}
}

// dataset is what a task moves: the one that is listed under its id, or else
// the source that its message names.
func (c *Catalogue) dataset(t Task) (Dataset, error) {
	if d, listed := c.datasets[t.Dataset()]; listed {
		return d, nil
	}
	named, given := t.message().Metadata["source"]
	if !given || c.Sources.none() {
		return Dataset{}, fmt.Errorf("datasetId: there is no dataset %q", t.Dataset())
	}
	text, _ := named.(string)
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return Dataset{}, errors.New("metadata.source: want a URL")
	}
	d := Dataset{ID: t.Dataset()}
	switch u.Scheme {
	case "http", "https":
		if err := checkURL(text); err != nil {
			return Dataset{}, fmt.Errorf("metadata.source: %w", err)
		}
		if !slices.ContainsFunc(c.Sources.HTTP, func(base string) bool { return base == "*" || begins(text, base) }) {
			return Dataset{}, errNotNamed
		}
		d.HTTP = &HTTPEnd{URL: text}
	case "file":
		name := filepath.FromSlash(strings.TrimPrefix(u.Path, "/"))
		if name == "" || !filepath.IsLocal(name) {
			return Dataset{}, errors.New("metadata.source: the path is missing, or leads out of its root")
		}
		if !slices.Contains(c.Sources.Roots, u.Host) {
			return Dataset{}, errNotNamed
		}
		d.File = &FileEnd{Root: u.Host, Path: name}
	case "s3":
		d.S3, err = c.namedObject(u)
	default:
		err = fmt.Errorf("metadata.source: scheme %q is none of http, https, file and s3", u.Scheme)
	}
	return d, err
}

// errNotNamed does not tell what is there.
var errNotNamed = errors.New("metadata.source: not one that this data plane may read")

func (c *Catalogue) namedObject(u *url.URL) (*S3End, error) {
	key := strings.TrimPrefix(u.Path, "/")
	if u.Host == "" || key == "" {
		return nil, errors.New("metadata.source: want s3://bucket/key")
	}
	for _, s := range c.Sources.S3 {
		if s.Bucket == "" || s.Bucket == u.Host {
			s.Bucket, s.Key = u.Host, key
			return &s, nil
		}
	}
	return nil, errNotNamed
}
