//go:build unix

package flows_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/transfer/move/s3test"
)

// bucket is an S3 server that a fleet reads from and writes to. Under the key
// in/object there is dataset "object".
func (p *plane) bucket() *s3test.Server {
	p.t.Helper()
	s := s3test.Start(p.t)
	account := fmt.Sprintf("endpoint: %q, bucket: %s, access_key: %s, secret_key: %q", s.URL, s.Bucket, s.AccessKey, s.SecretKey)
	p.stores = "{" + account + "}"
	p.datasets += fmt.Sprintf("    - {id: object, s3: {%s, key: in/object}}\n", account)
	return s
}

// toS3 is the address of an object.
func toS3(s *s3test.Server, key string) map[string]any {
	return map[string]any{
		"@type": "DataAddress", "endpointType": "https://w3id.org/dspace-sig/profile/s3-push", "endpoint": s.URL,
		"endpointProperties": []map[string]any{
			{"@type": "EndpointProperty", "name": "bucketName", "value": s.Bucket},
			{"@type": "EndpointProperty", "name": "keyName", "value": key},
		},
	}
}

// objects demands that the bucket holds these objects, all of them with the
// source's bytes, and nothing of an upload.
func (p *plane) objects(s *s3test.Server, keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		if got, err := os.ReadFile(s.Path(key)); err != nil || !bytes.Equal(got, p.from.data) {
			p.t.Errorf("object %s has %d bytes, %v; want the source's %d", key, len(got), err, len(p.from.data))
		}
	}
	var found []string
	root := s.Path("")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, ".sgwtmp") {
			key, _ := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(key))
		}
		return err
	})
	if err != nil || fmt.Sprint(found) != fmt.Sprint(keys) {
		p.t.Errorf("the bucket holds %q, %v; want %q", found, err, keys)
	}
	if left := s.Leftovers(p.t); len(left) > 0 {
		p.t.Errorf("of uploads there is left %q", left)
	}
}

// gate is in front of an S3 server. Once the first upload has been completed it
// does something else than to say so.
type gate struct {
	url     string
	uploads atomic.Int32 // begun
}

func newGate(t testing.TB, s *s3test.Server, instead func()) *gate {
	t.Helper()
	behind, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	g := &gate{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(behind)
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			query := r.Request.URL.Query()
			switch {
			case r.Request.Method != http.MethodPost || r.StatusCode != http.StatusOK:
			case query.Has("uploads"):
				g.uploads.Add(1)
			case query.Has("uploadId"):
				// The answer tells whether it was completed, so it is awaited.
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				once.Do(instead)
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // of a client that was killed
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func TestS3(t *testing.T) {
	t.Parallel()

	t.Run("IsWrittenToAndReadFrom", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, size)
		s := p.bucket()
		n := p.start("a")[0]
		fromS3 := map[string]any{"datasetId": "object"}
		for _, c := range []struct {
			id   string
			to   map[string]any
			more map[string]any
		}{
			{"http-s3", toS3(s, "in/object"), nil},
			{"s3-file", toFile("out", "s3-file"), fromS3},
			{"s3-s3", toS3(s, "out/object"), fromS3},
		} {
			m := push(c.id, c.to)
			maps.Copy(m, c.more)
			if r := n.ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
				t.Fatalf("%s: start: %s", c.id, r)
			}
			if got := n.becomes(c.id, "COMPLETED"); got.json["sha256"] != p.from.sum() || got.json["bytes"] != float64(size) {
				t.Errorf("%s: %s", c.id, got)
			}
			p.control.hears(c.id, "completed")
		}
		p.whole("out", "s3-file")
		p.objects(s, "in/object", "out/object")
	})

	t.Run("RefusesABucketThatIsNotItsOwn", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, size)
		s := p.bucket()
		n := p.start("a")[0]
		elsewhere := *s
		elsewhere.Bucket = "elsewhere"
		if r := n.ask(http.MethodPost, "/dataflows/start", push("refused", toS3(&elsewhere, "x"))); r.status != http.StatusBadRequest {
			t.Errorf("start: %s", r)
		}
	})

	t.Run("MakesOneObjectThoughTheOwnerIsKilledMidCopy", func(t *testing.T) {
		t.Parallel()
		const large = 40 << 20 // parts have 16 MiB
		p := newPlane(t, large)
		s := p.bucket()
		nodes := p.start("a", "b")
		at := 20 << 20
		p.from.allow(at)
		m := push("killed", toS3(s, "killed"))
		if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		within(t, "a part is safe", func() bool {
			at = min(at+(8<<10), 30<<20) // slowly: what was saved is written while bytes come
			p.from.allow(at)
			safe, _ := nodes[0].status("killed").json["safeBytes"].(float64)
			return safe > 0
		})
		if _, err := os.Stat(s.Path("killed")); err == nil {
			t.Error("something is seen before it is whole")
		}
		nodes[0].Kill()
		p.from.allow(large)
		repeated(t, nodes[1].ask(http.MethodPost, "/dataflows/start", m), "killed", "STARTED")
		got := nodes[1].becomes("killed", "COMPLETED")
		if got.json["sha256"] != p.from.sum() || got.json["bytes"] != float64(large) || got.json["attempts"] != float64(2) {
			t.Errorf("status = %s, want all bytes, in two executions", got)
		}
		if _, resumed, _, _ := p.from.counts(); resumed == 0 {
			t.Error("it was begun again from the start")
		}
		p.control.hears("killed", "completed")
		p.objects(s, "killed")
	})

	t.Run("MakesOneObjectThoughTheOwnerIsKilledRightAfterItsCommit", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, size)
		s := p.bucket()
		var nodes []*node
		g := newGate(t, s, func() { nodes[0].Kill() })
		p.stores, p.datasets = strings.ReplaceAll(p.stores, s.URL, g.url), strings.ReplaceAll(p.datasets, s.URL, g.url)
		nodes = p.start("a", "b")
		to := *s
		to.URL = g.url
		m := push("landed", toS3(&to, "landed"))
		if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		got := nodes[1].becomes("landed", "COMPLETED")
		if got.json["sha256"] != p.from.sum() || got.json["bytes"] != float64(size) || got.json["attempts"] != float64(2) {
			t.Errorf("status = %s, want all bytes, in two executions", got)
		}
		if opens, _, _, _ := p.from.counts(); opens != 1 {
			t.Errorf("the source was read %d times", opens)
		}
		if begun := g.uploads.Load(); begun != 1 {
			t.Errorf("%d uploads were begun", begun)
		}
		p.control.hears("landed", "completed")
		p.objects(s, "landed")
	})

	t.Run("KeepsNothingOfAFlowThatWasTerminated", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, size)
		s := p.bucket()
		n := p.start("a")[0]
		p.from.allow(size / 2)
		if r := n.ask(http.MethodPost, "/dataflows/start", push("ended", toS3(s, "ended"))); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		within(t, "an upload has begun", func() bool { return len(s.Leftovers(t)) > 0 })
		if r := n.ask(http.MethodPost, "/dataflows/ended/terminate", map[string]any{"messageId": "t"}); r.status != http.StatusOK {
			t.Fatalf("terminate: %s", r)
		}
		p.objects(s)
	})
}
