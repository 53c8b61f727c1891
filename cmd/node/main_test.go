package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram makes the test binary be the program itself.
const asProgram = "PROBATE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		// It must not outlive who started it.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(99)
		}()
		main()
	}
	// A server lingers for half a second, on purpose and for longer than is waited
	// here, after it has refused the rest of a body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// result is what a command came to.
type result struct {
	code     int
	out, err string
}

// invoke runs a command in this process.
func invoke(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	p := process{args: args, in: strings.NewReader(""), out: &out, err: &errs, environ: environ, deaf: func() {}}
	code := run(t.Context(), p)
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed and returns what it wrote.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := invoke(t, nil, args...)
	if r.code != exitDone {
		t.Fatalf("probate %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// okJSON runs a command with -o json and reads what it wrote.
func okJSON(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var v map[string]any
	if text := ok(t, append(args, "-o", "json")...); json.Unmarshal([]byte(text), &v) != nil {
		t.Fatalf("probate %s -o json wrote no JSON object: %s", strings.Join(args, " "), text)
	}
	return v
}

// await polls until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// logbook collects a node's log, which is JSON, a line an entry.
type logbook struct {
	mu      sync.Mutex
	partial []byte
	entries []map[string]any
	raw     bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.raw.Write(b)
	l.partial = append(l.partial, b...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.partial = rest
		var entry map[string]any
		if json.Unmarshal(line, &entry) == nil {
			l.entries = append(l.entries, entry)
		}
	}
}

// all are the entries with this message.
func (l *logbook) all(message string) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e["msg"] == message {
			found = append(found, e)
		}
	}
	return found
}

func (l *logbook) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raw.String()
}

// embedded is a node that runs in this process.
type embedded struct {
	log              *logbook
	public, internal string // base URLs
	signals          chan os.Signal
	ended            chan int
	code             int
}

// startEmbedded runs probate serve in this process, and returns once it
// listens.
func startEmbedded(t *testing.T, args ...string) *embedded {
	t.Helper()
	n := &embedded{log: &logbook{}, signals: make(chan os.Signal, 8), ended: make(chan int)}
	p := process{
		args: append([]string{"serve", "--log.format", "json"}, args...), in: strings.NewReader(""), out: io.Discard, err: n.log,
		signals: n.signals, deaf: func() {},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		n.code = run(ctx, p)
		close(n.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-n.ended
		if t.Failed() {
			t.Logf("log of %s:\n%s", n.public, n.log.text())
		}
	})
	await(t, "the node listens", func() bool {
		return n.over() || len(n.log.all("listening")) > 0
	})
	if n.over() {
		t.Fatalf("serve: exit code %d\n%s", n.code, n.log.text())
	}
	n.public, n.internal = addresses(n.log)
	return n
}

func addresses(l *logbook) (public, internal string) {
	entry := l.all("listening")[0]
	return fmt.Sprint("http://", entry["public"]), fmt.Sprint("http://", entry["internal"])
}

func (n *embedded) over() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}
