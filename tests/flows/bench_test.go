//go:build linux

package flows_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

var flowSize = flag.Int64("flow.size", 128, "MiB that `BenchmarkCopy` has one flow move, and a fifth of it each of ten; the full one is 1024")

// memoryLimit is by how much the memory of a node may grow while it moves
// bytes, however many.
const memoryLimit = 64 << 20

// BenchmarkCopy measures from a start, or ten at once, to the callback that all
// is completed, and the same bytes by curl and sync on the same disc; whoever
// begins changes from round to round. An iteration is a round. It fails if the
// node's memory grew too much.
func BenchmarkCopy(b *testing.B) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		b.Fatal("this benchmark compares with curl, which is missing: .ci/setup installs it")
	}
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	for _, flows := range []int{1, 10} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			length := *flowSize << 20
			if flows > 1 {
				length /= 5
			}
			c := newCourse(b, cluster.Database(b), newTap(b, length, 0), "a")
			var ours, theirs []time.Duration
			var grown int64
			for round := 0; b.Loop(); round++ {
				if round%2 == 0 {
					theirs = append(theirs, c.curl(curl, flows))
				}
				took, more := c.copy(round, flows)
				ours, grown = append(ours, took), max(grown, more)
				if round%2 == 1 {
					theirs = append(theirs, c.curl(curl, flows))
				}
			}
			if grown >= memoryLimit {
				b.Errorf("the node's memory grew by %d MiB", grown>>20)
			}
			rate := func(d time.Duration) float64 { return float64(length*int64(flows)) / (1 << 20) / d.Seconds() }
			ratios := make([]float64, len(ours))
			for i := range ours {
				ratios[i] = theirs[i].Seconds() / ours[i].Seconds()
			}
			b.ReportMetric(rate(median(ours)), "MiB/s")
			b.ReportMetric(rate(median(theirs)), "curl-MiB/s")
			b.ReportMetric(median(ratios), "of-curl")
			b.ReportMetric(float64(grown)/(1<<20), "MiB-grown")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkProgress has ten flows take their time at once, and counts what the
// server of the store was sent about how far they are. It fails if that was
// more than one write every five seconds and flow, and one when its bytes are
// all there: whoever takes over then finds out whether they were shown.
func BenchmarkProgress(b *testing.B) {
	const flows, pace = 10, 12 * time.Second
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true, Settings: map[string]string{"shared_preload_libraries": "'pg_stat_statements'"}})
	server := postgrestest.Open(b, cluster.DSN("postgres"))
	if _, err := server.ExecContext(b.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		b.Fatalf("%v: install PostgreSQL's contrib modules", err)
	}
	// sent are the statements that write progress, and the rows they wrote.
	sent := func() (statements, writes int) {
		err := server.QueryRowContext(b.Context(),
			`SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0) FROM pg_stat_statements WHERE query LIKE '%UPDATE probate.flows%checkpoint = nullif(u.checkpoint%'`).
			Scan(&statements, &writes)
		if err != nil {
			b.Fatal(err)
		}
		return statements, writes
	}
	c := newCourse(b, cluster.Database(b), newTap(b, 64<<20, pace), "a")
	var took time.Duration
	round := 0
	for ; b.Loop(); round++ {
		once, _ := c.copy(round, flows)
		took += once
	}
	statements, writes := sent()
	if most := round * flows * (1 + int(took/time.Duration(round)/(5*time.Second))); writes > most || writes == 0 {
		b.Errorf("%d writes, at most %d are wanted", writes, most)
	}
	b.ReportMetric(float64(writes)/float64(round*flows)/(took.Seconds()/float64(round)/5), "writes/flow/5s")
	b.ReportMetric(float64(statements)/float64(writes), "statements/write")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDuplicateStart repeats the start of a flow whose bytes move, at its
// owner and at another node. An iteration is one duplicate.
func BenchmarkDuplicateStart(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	c := newCourse(b, cluster.Database(b), newTap(b, 1<<30, time.Hour), "a", "b")
	c.begin("flow")
	for i, where := range []string{"AtItsOwner", "AtAnotherNode"} {
		b.Run(where, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				begun := time.Now()
				r := c.nodes[i].ask(http.MethodPost, "/dataflows/start", push("flow", toFile("out", "flow")))
				all = append(all, time.Since(begun))
				repeated(b, r, "flow", "STARTED")
			}
			b.ReportMetric(milliseconds(median(all)), "median-ms")
			b.ReportMetric(milliseconds(slices.Max(all)), "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
	c.terminate(0, "flow")
}

// BenchmarkTerminate measures from the request to when both its answer is there
// and nobody reads the source. An iteration is one flow.
func BenchmarkTerminate(b *testing.B) {
	cluster := postgrestest.Start(b, postgrestest.Options{Fsync: true})
	c := newCourse(b, cluster.Database(b), newTap(b, 8<<30, 2*time.Minute), "a", "b")
	for i, where := range []string{"AtItsOwner", "AtAnotherNode"} {
		b.Run(where, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				id := fmt.Sprintf("%s-%d", where, len(all))
				c.begin(id)
				begun := time.Now()
				c.terminate(i, id)
				all = append(all, time.Since(begun))
			}
			b.ReportMetric(milliseconds(median(all)), "median-ms")
			b.ReportMetric(milliseconds(slices.Max(all)), "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median[T int64 | float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// tap is an HTTP server with any number of bytes at any path.
type tap struct {
	url    string
	length int64
	pace   time.Duration // for all of them; 0: as quickly as they are taken
	block  []byte

	mu      sync.Mutex
	reading int
	sent    int64
}

const (
	quickBlock = 1 << 20
	slowBlock  = 64 << 10
)

func newTap(b *testing.B, length int64, pace time.Duration) *tap {
	b.Helper()
	t := &tap{length: length, pace: pace, block: newSource(b, quickBlock).data}
	if pace > 0 {
		t.block = t.block[:slowBlock]
	}
	server := httptest.NewServer(t)
	b.Cleanup(server.Close)
	t.url = server.URL
	return t
}

func (t *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.count(1, 0)
	defer t.count(-1, 0)
	w.Header().Set("Content-Length", strconv.FormatInt(t.length, 10))
	w.Header().Set("ETag", `"1"`)
	begun := time.Now()
	for at := int64(0); at < t.length; {
		n, err := w.Write(t.block[:min(int64(len(t.block)), t.length-at)])
		t.count(0, int64(n))
		if err != nil {
			return
		}
		at += int64(n)
		if t.pace == 0 {
			continue
		}
		due := time.Duration(float64(t.pace) * float64(at) / float64(t.length))
		select {
		case <-time.After(due - time.Since(begun)):
		case <-r.Context().Done():
			return
		}
	}
}

func (t *tap) count(reading int, sent int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading += reading
	t.sent += sent
}

func (t *tap) counts() (reading int, sent int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading, t.sent
}

// course is a fleet that is measured: with the defaults of its configuration,
// and a tap as the dataset "asset".
type course struct {
	b       *testing.B
	out     string // folder of the sink
	tap     *tap
	control *controlPlane
	nodes   []*node
}

func newCourse(b *testing.B, store string, from *tap, slots ...string) *course {
	b.Helper()
	c := &course{b: b, out: b.TempDir(), tap: from, control: newControlPlane(b)}
	file := filepath.Join(b.TempDir(), "probate.yaml")
	config := fmt.Appendf(nil, `store: %s
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", allow: [127.0.0.0/8]}
log: {format: json}
dataflows:
  enabled: true
  tokens: [%s]
  control_plane: {url: %q, token: %s}
  roots: [{name: out, path: %q, write: true, shared: true}]
  datasets: [{id: asset, http: {url: %q}}]
`, store, token, c.control.url, controlToken, c.out, from.url)
	if err := os.WriteFile(file, config, 0o600); err != nil {
		b.Fatal(err)
	}
	binary := probate(b)
	for _, slot := range slots {
		program := func(ctx context.Context, s fleet.Spec) *exec.Cmd {
			cmd := exec.CommandContext(ctx, binary, "serve", "--config", file, "--slot", s.Slot)
			cmd.Env = []string{"HOME=" + c.out, "PATH=" + os.Getenv("PATH")}
			return cmd
		}
		n := &node{Node: fleet.Launch(b, program, fleet.Spec{Slot: slot}), t: b}
		n.base = "http://" + n.Spec.Public
		n.serves()
		c.nodes = append(c.nodes, n)
	}
	return c
}

// copy has the first node move so many flows at once. It returns how long that
// took and by how much the node's memory grew at most, and takes the files away.
func (c *course) copy(round, flows int) (took time.Duration, grown int64) {
	c.b.Helper()
	n := c.nodes[0]
	before := c.resetMemory(n.Pid())
	ids := make([]string, flows)
	var starting sync.WaitGroup
	begun := time.Now()
	for i := range ids {
		ids[i] = fmt.Sprintf("flow-%d-%d-%d", flows, round, i)
		starting.Go(func() {
			r, err := n.try(c.b.Context(), http.MethodPost, "/dataflows/start", push(ids[i], toFile("out", ids[i])), token)
			if err != nil || r.status != http.StatusOK {
				c.b.Errorf("start: %s, %v", r, err)
			}
		})
	}
	starting.Wait()
	for _, id := range ids {
		c.control.hears(id, "completed")
	}
	took = time.Since(begun)
	grown = memory(c.b, n.Pid(), "VmHWM") - before
	for _, id := range ids {
		f := filepath.Join(c.out, id)
		if info, err := os.Stat(f); err != nil || info.Size() != c.tap.length {
			c.b.Fatalf("the sink: %v, %v", info, err)
		}
		if err := os.Remove(f); err != nil {
			c.b.Fatal(err)
		}
	}
	return took, grown
}

// curl runs `curl -o f && sync f`, as many at once as there are flows.
func (c *course) curl(program string, flows int) time.Duration {
	c.b.Helper()
	var script strings.Builder
	for i := range flows {
		f := filepath.Join(c.out, fmt.Sprintf("curl-%d", i))
		fmt.Fprintf(&script, "(%s -sSf -o %s %s && sync %[2]s) &\n", program, f, c.tap.url)
	}
	script.WriteString("wait\n")
	begun := time.Now()
	said, err := exec.CommandContext(c.b.Context(), "sh", "-c", script.String()).CombinedOutput()
	took := time.Since(begun)
	if err != nil || len(said) > 0 {
		c.b.Fatalf("curl: %v %s", err, said)
	}
	for i := range flows {
		if err := os.Remove(filepath.Join(c.out, fmt.Sprintf("curl-%d", i))); err != nil {
			c.b.Fatal(err)
		}
	}
	return took
}

// begin starts a flow at the first node, and returns when its bytes move.
func (c *course) begin(id string) {
	c.b.Helper()
	_, before := c.tap.counts()
	if r := c.nodes[0].ask(http.MethodPost, "/dataflows/start", push(id, toFile("out", id))); r.status != http.StatusOK || r.state() != "STARTED" {
		c.b.Fatalf("start: %s", r)
	}
	within(c.b, "bytes move", func() bool {
		_, sent := c.tap.counts()
		return sent >= before+4*slowBlock
	})
}

// terminate ends a flow through a node, and returns when nobody reads the source.
func (c *course) terminate(i int, id string) {
	c.b.Helper()
	if r := c.nodes[i].ask(http.MethodPost, "/dataflows/"+id+"/terminate", map[string]any{"messageId": "m"}); r.status != http.StatusOK {
		c.b.Fatalf("terminate: %s", r)
	}
	within(c.b, "nobody reads the source", func() bool { reading, _ := c.tap.counts(); return reading == 0 })
}

// resetMemory has the kernel forget the most that a process ever had in memory,
// and returns what it has now.
func (c *course) resetMemory(pid int) int64 {
	c.b.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200); err != nil {
		c.b.Fatal(err)
	}
	return memory(c.b, pid, "VmRSS")
}

// memory is a line of what the kernel says of a process, in bytes.
func memory(t testing.TB, pid int, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			n, err := strconv.ParseInt(string(bytes.Fields(value)[0]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("the kernel says no %s", name)
	return 0
}
