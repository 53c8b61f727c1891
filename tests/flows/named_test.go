//go:build unix

package flows_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestNamedSources is about datasets that are not listed, and that messages name
// by metadata.source where the configuration allows that.
func TestNamedSources(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 256<<10)
	s := p.bucket()
	p.extra = fmt.Sprintf("  sources: {http: [%q], roots: [in], s3: [%s]}\n", p.from.url+"/open/", p.stores)
	if err := os.WriteFile(s.Path("named"), p.from.data, 0o600); err != nil {
		t.Fatal(err)
	}
	n := p.start("a")[0]
	named := func(id, source string) map[string]any {
		return message(id, httpPush, map[string]any{
			"datasetId": "not listed", "metadata": map[string]any{"source": source}, "dataAddress": toFile("out", id),
		})
	}
	for _, source := range []string{p.from.url + "/open/it", "file://in/file.bin", "s3://" + s.Bucket + "/named"} {
		id, _, _ := strings.Cut(source, ":")
		t.Run("Are"+id, func(t *testing.T) {
			if r := n.ask(http.MethodPost, "/dataflows/start", named(id, source)); r.status != http.StatusOK {
				t.Fatalf("start: %s", r)
			}
			if got := n.becomes(id, "COMPLETED"); got.json["sha256"] != p.from.sum() {
				t.Errorf("status = %s", got)
			}
		})
	}
	for name, c := range map[string]struct{ source, says string }{
		"AnotherAddress": {p.from.url + "/closed", "may read"},
		"AnotherHost":    {"http://169.254.169.254/open/it", "may read"},
		"StepsUpwards":   {p.from.url + "/open/../closed", "a step upwards"},
		"AnotherRoot":    {"file://own/x", "may read"},
		"OutOfTheRoot":   {"file://in/../own/x", "leads out of its root"},
		"AnotherBucket":  {"s3://elsewhere/named", "may read"},
		"NoKey":          {"s3://" + s.Bucket, "want s3://bucket/key"},
		"AnotherScheme":  {"ftp://host/x", "none of http, https, file and s3"},
		"Nothing":        {"", "want a URL"},
	} {
		t.Run("Refuses"+name, func(t *testing.T) {
			r := n.ask(http.MethodPost, "/dataflows/start", named("refused", c.source))
			if detail, _ := r.json["detail"].(string); r.status != http.StatusBadRequest || !strings.Contains(detail, c.says) {
				t.Errorf("answer = %s, want 400 and %q", r, c.says)
			}
		})
	}
	t.Run("DoNotReplaceWhatIsListed", func(t *testing.T) {
		m := named("listed", "file://in/missing")
		m["datasetId"] = "file"
		if r := n.ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		n.becomes("listed", "COMPLETED")
	})
	p.holds("out", "file", "http", "listed", "s3")
}
