package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/probate-dev/probate/transfer/move"
)

// Catalogue is the [Ends] that a configuration lists: what may be read, and
// where may be written. What it does not name is refused.
type Catalogue struct {
	Roots    []Root
	Datasets []Dataset
	Sources  Sources // that messages may name
	Sinks    Sinks
	// ReceiveIn is the root in which pushes are received for which this fleet
	// is the consumer, each under its flow's id. Empty: none are.
	ReceiveIn string
	// Networks are those that HTTP and S3 ends may be in. Empty: all but
	// link-local ones and those where clouds keep credentials.
	Networks []netip.Prefix

	transport *http.Transport
	roots     map[string]Root
	datasets  map[string]Dataset
}

// Root is a folder below which files may be read, and with Write written.
type Root struct {
	Name  string
	Path  string
	Write bool
	// Shared: every node sees the same files there. A flow with an end on a
	// root that is not shared is gone on with only in the slot where it began.
	Shared bool
}

// Dataset is what can be transferred: one of its ends.
type Dataset struct {
	ID   string
	HTTP *HTTPEnd
	File *FileEnd
	S3   *S3End
}

// HTTPEnd is a URL, and what is sent with the request.
type HTTPEnd struct {
	URL     string
	Headers map[string]string
}

// FileEnd is a file below a root.
type FileEnd struct{ Root, Path string }

// S3End is an object in a bucket of any S3-compatible store.
type S3End struct {
	Endpoint, Region, Bucket, Key string
	AccessKey, SecretKey          string
}

// Sinks says where bytes may go.
type Sinks struct {
	// HTTP are beginnings of the addresses to which may be pushed; "*" is any.
	HTTP []string
	// S3 are the stores that may be written to.
	S3 []S3Store
}

// S3Store is a store that may be written to.
type S3Store struct {
	Endpoint, Region     string
	Bucket               string // empty: any
	AccessKey, SecretKey string
	// Exclusive: nobody but this fleet uploads in parts to the keys that it
	// writes, so what is found there is left over and is taken away. See
	// [move.S3Sink].
	Exclusive bool
}

// Open checks the catalogue and makes it ready.
func (c Catalogue) Open() (*Catalogue, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	c.roots, c.datasets = map[string]Root{}, map[string]Dataset{}
	for _, r := range c.Roots {
		switch {
		case r.Name == "" || strings.ContainsAny(r.Name, "/\\"):
			fault("roots: %q is no name", r.Name)
		case !filepath.IsAbs(r.Path):
			fault("roots: %s: %q is not an absolute path", r.Name, r.Path)
		case c.roots[r.Name].Name != "":
			fault("roots: %s is listed twice", r.Name)
		}
		c.roots[r.Name] = r
	}
	for _, d := range c.Datasets {
		if err := c.checkDataset(d); err != nil {
			fault("datasets: %q: %w", d.ID, err)
		}
		c.datasets[d.ID] = d
	}
	if r, ok := c.roots[c.ReceiveIn]; c.ReceiveIn != "" && (!ok || !r.Write) {
		fault("receive_in: %q is not the name of a root with write", c.ReceiveIn)
	}
	c.checkSources(fault)
	for _, base := range c.Sinks.HTTP {
		if base != "*" {
			if err := checkURL(base); err != nil {
				fault("sinks.http: %q: %w", base, err)
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	c.transport = move.NewTransport(c.dialable)
	return &c, nil
}

func (c *Catalogue) checkDataset(d Dataset) error {
	kinds := 0
	for _, given := range []bool{d.HTTP != nil, d.File != nil, d.S3 != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case d.ID == "":
		return errors.New("no id")
	case c.datasets[d.ID].ID != "":
		return errors.New("listed twice")
	case kinds != 1:
		return errors.New("want one of http, file and s3")
	case d.HTTP != nil:
		if d.HTTP.URL == "" {
			return errors.New("http: no url")
		}
		return checkURL(d.HTTP.URL)
	case d.File != nil:
		if c.roots[d.File.Root].Name == "" {
			return fmt.Errorf("file: there is no root %q", d.File.Root)
		}
		if !filepath.IsLocal(d.File.Path) {
			return fmt.Errorf("file: %q leads out of its root", d.File.Path)
		}
	case d.S3.Bucket == "" || d.S3.Key == "" || d.S3.Endpoint == "":
		return errors.New("s3: want endpoint, bucket and key")
	}
	return nil
}

// dialable refuses addresses that answer to anybody who can make this process
// connect.
func (c *Catalogue) dialable(a netip.AddrPort) error {
	ip := a.Addr().Unmap().WithZone("")
	for _, n := range c.Networks {
		if n.Contains(ip) {
			return nil
		}
	}
	if len(c.Networks) > 0 || !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() {
		return fmt.Errorf("%s is in no network that may be dialled", ip)
	}
	if slices.Contains(metadata, ip) {
		return fmt.Errorf("%s is where a cloud keeps credentials", ip)
	}
	return nil
}

// metadata services of clouds that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// Close lets idle connections go.
func (c *Catalogue) Close() { c.transport.CloseIdleConnections() }

// Source implements [Ends].
func (c *Catalogue) Source(t Task) (move.Source, error) {
	d, err := c.dataset(t)
	switch {
	case err != nil:
		return nil, err
	case d.HTTP != nil:
		h := http.Header{}
		for name, value := range d.HTTP.Headers {
			h.Set(name, value)
		}
		return move.HTTPSource{URL: d.HTTP.URL, Header: h, Transport: c.transport}, nil
	case d.File != nil:
		return move.FileSource{Root: c.roots[d.File.Root].Path, Path: d.File.Path}, nil
	}
	return c.s3Source(*d.S3)
}

// kind of an endpoint: the last step of its type, such as …/profile/http-push,
// HttpData-PUSH or AmazonS3, up to the first dash.
func kind(endpointType string) string {
	last := endpointType[strings.LastIndexAny(endpointType, "/#:")+1:]
	first, _, _ := strings.Cut(strings.ToLower(last), "-")
	switch first {
	case "http", "https", "httpdata":
		return "http"
	case "s3", "amazons3":
		return "s3"
	case "file":
		return "file"
	}
	return ""
}

// Sink implements [Ends].
func (c *Catalogue) Sink(t Task) (move.Sink, error) {
	to := t.Destination()
	if to == nil {
		return nil, errors.New("dataAddress: missing; a push needs to know where to")
	}
	switch kind(to.EndpointType) {
	case "http":
		return c.httpSink(t, to)
	case "file":
		return c.fileSink(to)
	case "s3":
		return c.s3Sink(to)
	}
	return nil, fmt.Errorf("dataAddress: endpointType %q is none of http, file and s3", to.EndpointType)
}

func (c *Catalogue) httpSink(t Task, to *DataAddress) (move.Sink, error) {
	if err := checkURL(to.Endpoint); err != nil || to.Endpoint == "" {
		return nil, errors.Join(errors.New("dataAddress: endpoint: want an absolute URL over http or https"), err)
	}
	if !slices.ContainsFunc(c.Sinks.HTTP, func(base string) bool { return base == "*" || begins(to.Endpoint, base) }) {
		return nil, errors.New("dataAddress: endpoint: not one that this data plane may push to")
	}
	h := http.Header{"Content-Type": {"application/octet-stream"}, "Idempotency-Key": {`"` + url.PathEscape(t.message().ProcessID) + `"`}}
	if value := to.Property("authorization"); value != "" {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return nil, errors.New("dataAddress: authorization: has control characters")
		}
		switch scheme := strings.ToLower(to.Property("authType")); scheme {
		case "", "bearer":
			h.Set("Authorization", "Bearer "+value)
		case "basic":
			h.Set("Authorization", "Basic "+value)
		default:
			return nil, fmt.Errorf("dataAddress: authType %q is neither bearer nor basic", scheme)
		}
	}
	method := strings.ToUpper(to.Property("method"))
	if method != "" && method != http.MethodPut && method != http.MethodPost {
		return nil, fmt.Errorf("dataAddress: method %q is neither PUT nor POST", method)
	}
	return move.HTTPSink{URL: to.Endpoint, Method: method, Header: h, Transport: c.transport}, nil
}

// fileOf is where a file address points: file://ROOT/path, or the properties
// root and path.
func fileOf(to *DataAddress) (root, name string, err error) {
	root, name = to.Property("root"), to.Property("path")
	if to.Endpoint != "" {
		u, err := url.Parse(to.Endpoint)
		if err != nil || u.Scheme != "file" {
			return "", "", errors.New("dataAddress: endpoint: want file://ROOT/path")
		}
		root, name = u.Host, strings.TrimPrefix(u.Path, "/")
	}
	if name = filepath.FromSlash(name); name == "" || !filepath.IsLocal(name) {
		return "", "", errors.New("dataAddress: the path is missing, or leads out of its root")
	}
	return root, name, nil
}

func (c *Catalogue) fileSink(to *DataAddress) (move.Sink, error) {
	root, name, err := fileOf(to)
	if err != nil {
		return nil, err
	}
	r, ok := c.roots[root]
	if !ok || !r.Write {
		return nil, fmt.Errorf("dataAddress: %q is not a root that may be written to", root)
	}
	return move.FileSink{Root: r.Path, Path: name}, nil
}

// Bound implements [Ends].
func (c *Catalogue) Bound(t Task) bool {
	if d, _ := c.dataset(t); d.File != nil && !c.roots[d.File.Root].Shared {
		return true
	}
	to := t.Destination()
	if to == nil || kind(to.EndpointType) != "file" {
		return false
	}
	root, _, err := fileOf(to)
	return err == nil && !c.roots[root].Shared
}

// longestStep is how long a file's name may be on every file system in use.
const longestStep = 143

// Inbox implements [Ends].
func (c *Catalogue) Inbox(t Task) (move.Sink, error) {
	r, ok := c.roots[c.ReceiveIn]
	if !ok {
		return nil, errors.New("this data plane receives no pushes")
	}
	// The id may hold anything; as a file's name it is one step, and a name.
	step := "f-" + url.PathEscape(t.message().ProcessID)
	if len(step) > longestStep { // not every id fits into a name; no escaped one has a "%%"
		sum := sha256.Sum256([]byte(t.message().ProcessID))
		step = fmt.Sprintf("f-%%%%%x", sum)
	}
	name := path.Join("flows", step)
	return move.FileSink{Root: r.Path, Path: filepath.FromSlash(name)}, nil
}
