//go:build unix

package move_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/tests/fleet"
	"github.com/probate-dev/probate/transfer/move"
)

// The variable that makes this program a child of its tests: a word of the
// table below, and what it is to do as JSON.
const (
	childRole  = "MOVE_TEST_CHILD"
	childOrder = "MOVE_TEST_ORDER"
)

// order is what a child is told.
type order struct {
	Length int64    `json:"length"` // of what is served
	URLs   []string `json:"urls"`   // of sources
	Root   string   `json:"root"`   // of files as sinks
	Key    string   `json:"key"`    // of objects as sinks: S3, Bucket
	Bucket string   `json:"bucket"`
	S3     s3Access `json:"s3"`
}

type s3Access struct {
	Endpoint  string `json:"endpoint"`
	AccessKey string `json:"access"`
	SecretKey string `json:"secret"`
}

// answer is what it says in its last line.
type answer struct {
	URL     string        `json:"url,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	RSS     int64         `json:"rss,omitempty"` // the peak, less what it was before
	Bytes   int64         `json:"bytes,omitempty"`
	Faults  []string      `json:"faults,omitempty"`
	SHA256s []string      `json:"sha256s,omitempty"`
	Left    []string      `json:"left,omitempty"` // names in the root
}

func child(role string) int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childOrder)), &o); err != nil {
		return fail(err)
	}
	switch role {
	case "serve":
		return serveForever(o)
	case "copy":
		return copyAll(o)
	default:
		return fail(fmt.Errorf("no role %q", role))
	}
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func say(a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

// serveForever serves o.Length bytes under any path until its standard input
// ends.
func serveForever(o order) int {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sendBytes(w, o.Length) }))
	defer s.Close()
	say(answer{URL: s.URL})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// pattern is what sendBytes repeats. It is no power of two, so that bytes that
// go missing are missed.
var pattern = content(1<<20 + 7)

func sendBytes(w http.ResponseWriter, n int64) {
	w.Header().Set("Content-Length", fmt.Sprint(n))
	for n > 0 {
		b := pattern[:min(n, int64(len(pattern)))]
		if _, err := w.Write(b); err != nil {
			return
		}
		n -= int64(len(b))
	}
}

// patternReader reads what sendBytes sends.
type patternReader struct{ left, at int64 }

func (r *patternReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), r.left)], pattern[r.at%int64(len(pattern)):])
	r.left -= int64(n)
	r.at += int64(n)
	return n, nil
}

// copyAll copies every URL at once, to files or to a bucket, and says how long
// that took and how much it grew.
func copyAll(o order) int {
	before, err := peakRSS()
	if err != nil {
		return fail(err)
	}
	sink := func(i int) move.Sink { return move.FileSink{Root: o.Root, Path: fmt.Sprintf("out-%d", i)} }
	if o.S3.Endpoint != "" {
		store, err := move.NewS3(move.S3Config{Endpoint: o.S3.Endpoint, AccessKey: o.S3.AccessKey, SecretKey: o.S3.SecretKey})
		if err != nil {
			return fail(err)
		}
		sink = func(i int) move.Sink {
			return move.S3Sink{Store: store, Bucket: o.Bucket, Key: fmt.Sprintf("out-%d", i)}
		}
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		a       answer
		started = time.Now()
	)
	for i, url := range o.URLs {
		wg.Go(func() {
			r, err := move.Copy(context.Background(), move.Job{
				Identity: move.Identity{Flow: fmt.Sprint(i), Epoch: 1},
				Source:   move.HTTPSource{URL: url}, Sink: sink(i),
			})
			mu.Lock()
			defer mu.Unlock()
			a.Bytes += r.Bytes
			a.SHA256s = append(a.SHA256s, fmt.Sprintf("%x", r.SHA256))
			if err != nil {
				a.Faults = append(a.Faults, err.Error())
			}
		})
	}
	wg.Wait()
	a.Took = time.Since(started)
	after, err := peakRSS()
	if err != nil {
		return fail(err)
	}
	a.RSS = after - before
	if o.Root != "" {
		names, err := os.ReadDir(o.Root)
		if err != nil {
			return fail(err)
		}
		for _, n := range names {
			a.Left = append(a.Left, n.Name())
		}
	}
	say(a)
	return 0
}

// startChild starts this program in a role and returns it when it has said
// something. It runs within another command, if there is one.
func startChild(t testing.TB, role string, o order, within ...string) answer {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	args := append(within, os.Args[0])
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childRole+"="+role, childOrder+"="+string(b))
	p := fleet.Start(t, role, cmd)
	fleet.Await(t, role+" says something", func() bool { return p.Output.Has("}") || p.Ended() })
	for line := range strings.Lines(p.Output.Tail(50)) {
		var a answer
		if json.Unmarshal([]byte(line), &a) == nil {
			return a
		}
	}
	t.Fatalf("%s said nothing that makes sense: %s", role, p.Output.Tail(50))
	return answer{}
}
