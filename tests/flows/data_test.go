//go:build unix

package flows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// TestData is about bytes that others come for, or with.
func TestData(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 1<<20)
	nodes := p.start("a", "b")

	t.Run("APullStreamsThroughAnyNodeUntilItIsSuspended", func(t *testing.T) {
		r := nodes[0].ask(http.MethodPost, "/dataflows/start", message("pull", httpPull, map[string]any{"datasetId": "file"}))
		path, key := address(t, r)
		for _, n := range nodes {
			got, err := n.try(t.Context(), http.MethodGet, path, nil, key)
			if err != nil || got.status != http.StatusOK || !bytes.Equal(got.body, p.from.data) {
				t.Errorf("read: %d, %d bytes, %v", got.status, len(got.body), err)
			}
		}
		if got, _ := nodes[1].try(t.Context(), http.MethodGet, path, nil, "wrong"); got.status != http.StatusUnauthorized {
			t.Errorf("with a wrong token: %s", got)
		}
		nodes[1].ask(http.MethodPost, "/dataflows/pull/suspend", word1)
		if got, _ := nodes[0].try(t.Context(), http.MethodGet, path, nil, key); got.status != http.StatusUnauthorized {
			t.Errorf("after it was suspended: %d", got.status)
		}
		_, fresh := address(t, nodes[0].ask(http.MethodPost, "/dataflows/pull/resume", word1))
		if got, _ := nodes[1].try(t.Context(), http.MethodGet, path, nil, fresh); got.status != http.StatusOK {
			t.Errorf("after it was resumed: %d", got.status)
		}
		if got, _ := nodes[1].try(t.Context(), http.MethodGet, path, nil, key); got.status != http.StatusUnauthorized {
			t.Errorf("with the token of before: %d", got.status)
		}
	})
	t.Run("AReaderGoesOnWhereItStopped", func(t *testing.T) {
		path, key := address(t, nodes[0].ask(http.MethodPost, "/dataflows/start", message("range", httpPull, map[string]any{"datasetId": "file"})))
		whole, half := len(p.from.data), len(p.from.data)/2
		about := nodes[0].reads(t, http.MethodHead, path, key, nil)
		tag := about.header.Get("ETag")
		if about.status != http.StatusOK || len(about.body) > 0 || tag == "" || about.header.Get("Content-Length") != fmt.Sprint(whole) {
			t.Errorf("HEAD: %d %v", about.status, about.header)
		}
		from := fmt.Sprintf("bytes=%d-", half)
		for name, c := range map[string]struct {
			header map[string]string
			status int
			begins int
		}{
			"what is left":               {map[string]string{"Range": from}, http.StatusPartialContent, half},
			"of what it has begun":       {map[string]string{"Range": from, "If-Range": tag}, http.StatusPartialContent, half},
			"of what is another by now":  {map[string]string{"Range": from, "If-Range": `"other"`}, http.StatusOK, 0},
			"a range that is not served": {map[string]string{"Range": "bytes=1-2"}, http.StatusOK, 0},
			"beyond the end":             {map[string]string{"Range": fmt.Sprintf("bytes=%d-", whole+1)}, http.StatusOK, 0},
		} {
			got := nodes[1].reads(t, http.MethodGet, path, key, c.header)
			if got.status != c.status || !bytes.Equal(got.body, p.from.data[c.begins:]) {
				t.Errorf("%s: %d, %d bytes", name, got.status, len(got.body))
			}
			span := ""
			if c.status == http.StatusPartialContent {
				span = fmt.Sprintf("bytes %d-%d/%d", half, whole-1, whole)
			}
			if got := got.header.Get("Content-Range"); got != span {
				t.Errorf("%s: Content-Range %q, want %q", name, got, span)
			}
		}
	})
	t.Run("AReaderIsCutOffBeforeSuspendIsAnswered", func(t *testing.T) {
		p.from.allow(len(p.from.data) / 2)
		path, key := address(t, nodes[0].ask(http.MethodPost, "/dataflows/start", message("cut", httpPull, nil)))
		body := nodes[0].opens(t, path, key)
		if _, err := io.ReadFull(body, make([]byte, len(p.from.data)/4)); err != nil {
			t.Fatal(err)
		}
		if r := nodes[1].ask(http.MethodPost, "/dataflows/cut/suspend", word1); r.status != http.StatusOK {
			t.Fatalf("suspend: %s", r)
		}
		p.from.allow(len(p.from.data))
		if n, err := io.Copy(io.Discard, body); err == nil {
			t.Errorf("it could be read to its end, %d bytes more", n)
		}
	})
	t.Run("APushIsReceivedWhole", func(t *testing.T) {
		r := nodes[0].ask(http.MethodPost, "/dataflows/prepare", message("in/1", httpPush, nil))
		path, key := address(t, r)
		got, err := nodes[1].try(t.Context(), http.MethodPut, path, p.from.data, key)
		if err != nil || got.status != http.StatusOK || got.json["sha256"] != p.from.sum() {
			t.Fatalf("put: %s, %v", got, err)
		}
		stored, err := os.ReadFile(filepath.Join(p.dir, "inbox", "flows", "f-in%2F1"))
		if err != nil || !bytes.Equal(stored, p.from.data) {
			t.Errorf("stored %d bytes, %v", len(stored), err)
		}
		if r := nodes[0].status(url.PathEscape("in/1")); r.json["sha256"] != p.from.sum() {
			t.Errorf("status = %s", r)
		}
		nodes[0].ask(http.MethodPost, "/dataflows/in%2F1/terminate", word1)
		if got, _ := nodes[1].try(t.Context(), http.MethodPut, path, p.from.data, key); got.status != http.StatusUnauthorized {
			t.Errorf("after it was terminated: %s", got)
		}
	})
	t.Run("APushArrivesWholeAndWithItsToken", func(t *testing.T) {
		nodes[0].ask(http.MethodPost, "/dataflows/start", push("out", p.toHTTP("/in/out")))
		nodes[1].becomes("out", "COMPLETED")
		if body, auth := p.sink.got("/in/out"); !bytes.Equal(body, p.from.data) || auth != "Bearer T" {
			t.Errorf("the sink got %d bytes, with %q", len(body), auth)
		}
	})
	t.Run("AnUntrackedPullIsTheAnswer", func(t *testing.T) {
		r := nodes[0].ask(http.MethodPost, "/dataflows/start", message("solo", httpPull, map[string]any{"trackable": false, "datasetId": "file"}))
		if r.status != http.StatusOK || !bytes.Equal(r.body, p.from.data) {
			t.Errorf("answer: %d, %d bytes", r.status, len(r.body))
		}
	})
}

// TestPrepareThatIsNotWaitedFor: the control plane is told where a push is
// received, once, whatever becomes of the node that it has asked.
func TestPrepareThatIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 1<<10)
	p.extra = "  answer: async\n"
	p.environ = []string{"PROBATE_SEAL_KEYS=a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
	nodes := p.start("a", "b")
	ids := []string{"one", "two", "three", "four"}
	for _, id := range ids {
		if r := nodes[0].ask(http.MethodPost, "/dataflows/prepare", message(id, httpPush, nil)); r.status != http.StatusAccepted {
			t.Fatalf("prepare: %s", r)
		}
	}
	nodes[0].Kill()
	for _, id := range ids {
		nodes[1].becomes(id, "PREPARED")
		p.control.hears(id, "prepared")
		var told reply
		if err := json.Unmarshal([]byte(p.control.said(id)), &told.json); err != nil {
			t.Fatal(err)
		}
		path, key := address(t, told)
		if got, err := nodes[1].try(t.Context(), http.MethodPut, path, p.from.data, key); err != nil || got.status != http.StatusOK || got.json["sha256"] != p.from.sum() {
			t.Errorf("put: %s, %v", got, err)
		}
	}
}

// address takes the path and the token from an answer's data address.
func address(t *testing.T, r reply) (path, bearer string) {
	t.Helper()
	a, _ := r.json["dataAddress"].(map[string]any)
	endpoint, _ := a["endpoint"].(string)
	u, err := url.Parse(endpoint)
	if err != nil || u.Host != "data.example" {
		t.Fatalf("no address: %s", r)
	}
	properties, _ := a["endpointProperties"].([]any)
	for _, property := range properties {
		if m, _ := property.(map[string]any); m["name"] == "authorization" {
			bearer, _ = m["value"].(string)
		}
	}
	return u.EscapedPath(), bearer
}

// reads asks for a flow's data.
func (n *node) reads(t *testing.T, method, path, bearer string, header map[string]string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.base+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: body}
}

// opens begins to read.
func (n *node) opens(t *testing.T, path, bearer string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	return resp.Body
}
