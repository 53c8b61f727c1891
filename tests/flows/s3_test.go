//go:build unix

package flows_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
		p.from.allow(20 << 20)
		m := push("killed", toS3(s, "killed"))
		if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		within(t, "a part is safe", func() bool {
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
