//go:build unix

package move_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const gigabyte = 1 << 30

// BenchmarkHTTPToFile moves 1 GiB over loopback to a file, and lets curl and
// sync do the same right before. The server is a third process. It reports how
// fast both were, their ratio (1: as fast as curl), and by how much the memory
// of the copying process grew at most.
func BenchmarkHTTPToFile(b *testing.B) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		b.Fatal("this benchmark compares with curl, which is missing: .ci/setup installs it")
	}
	for _, flows := range []int{1, 10} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			length := int64(gigabyte / flows)
			server := startChild(b, "serve", order{Length: length})
			o := order{Root: b.TempDir()}
			for i := range flows {
				o.URLs = append(o.URLs, fmt.Sprintf("%s/%d", server.URL, i))
			}
			var ours, theirs time.Duration
			var grown int64
			for b.Loop() {
				theirs += curlAll(b, curl, o)
				a := startChild(b, "copy", o)
				if len(a.Faults) > 0 || a.Bytes != length*int64(flows) {
					b.Fatalf("copied %d bytes with faults %q", a.Bytes, a.Faults)
				}
				ours += a.Took
				grown = max(grown, a.RSS)
			}
			total := float64(b.N) * float64(length) * float64(flows) / (1 << 20)
			b.ReportMetric(total/ours.Seconds(), "MiB/s")
			b.ReportMetric(total/theirs.Seconds(), "curl-MiB/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-curl")
			b.ReportMetric(float64(grown)/(1<<20), "MiB-grown")
		})
	}
}

// curlAll runs `curl -o f && sync f`, as many at once as there are flows.
func curlAll(b *testing.B, curl string, o order) time.Duration {
	b.Helper()
	var script strings.Builder
	for i, url := range o.URLs {
		f := filepath.Join(o.Root, fmt.Sprintf("curl-%d", i))
		fmt.Fprintf(&script, "(%s -sSf -o %s %s && sync %s) &\n", curl, f, url, f)
	}
	script.WriteString("wait\n")
	started := time.Now()
	out, err := exec.CommandContext(b.Context(), "sh", "-c", script.String()).CombinedOutput()
	took := time.Since(started)
	if err != nil || len(out) > 0 {
		b.Fatalf("curl: %v %s", err, out)
	}
	for i := range o.URLs {
		if err := os.Remove(filepath.Join(o.Root, fmt.Sprintf("curl-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	return took
}
