//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// program is a process of its own.
type program struct {
	cmd              *exec.Cmd
	log              *logbook
	public, internal string
	ended            chan struct{}
}

// startProgram starts probate serve as a process and returns once it listens.
func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{log: &logbook{}, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], append([]string{"serve", "--log.format", "json"}, args...)...)
	p.cmd.Env = []string{asProgram + "=1", "HOME=" + t.TempDir()}
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.log
	hold, err := p.cmd.StdinPipe() // it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is read from its state
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = hold.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.public, p.log.text())
		}
	})
	await(t, "the process listens", func() bool { return p.over() || len(p.log.all("listening")) > 0 })
	if p.over() {
		t.Fatalf("serve: %s\n%s", p.cmd.ProcessState, p.log.text())
	}
	p.public, p.internal = addresses(p.log)
	return p
}

func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *program) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// stores are both kinds, each fresh.
var stores = map[string]func(t *testing.T) string{
	"SQLite":     sqliteStore,
	"PostgreSQL": func(t *testing.T) string { return postgrestest.Database(t) },
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	for kind, store := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := store(t)

			t.Run("TakeOverFromAKilledOne", func(t *testing.T) {
				s, client := newService(t), browser(t)
				a := startProgram(t, "--config", configure(t, at, s.URL))
				b := startProgram(t, "--config", configure(t, at, s.URL))
				ready(t, client, a.public)
				ready(t, client, b.public)
				if got := order(t.Context(), client, a.public, "before", ""); got.how != "executed" {
					t.Fatalf("%+v", got)
				}
				if got := order(t.Context(), client, b.public, "before", ""); got.how != "replayed" || got.body != "order of before" {
					t.Fatalf("on the other node: %+v", got)
				}

				first, second := make(chan answer, 1), make(chan answer, 1)
				go func() { first <- order(context.WithoutCancel(t.Context()), client, a.public, "k", "hold") }()
				<-s.begun
				go func() { second <- order(context.WithoutCancel(t.Context()), client, b.public, "k", "hold") }()
				await(t, "the duplicate waits", func() bool {
					_, text := get(t.Context(), client, b.internal+"/metrics")
					return strings.Contains(text, "probate_waiters 1")
				})
				a.signal(t, syscall.SIGKILL)
				if got := <-first; got.err == nil {
					t.Errorf("the killed node answered: %+v", got)
				}
				close(s.release)
				if got := <-second; got.status != http.StatusCreated || got.how != "taken-over" || got.body != "order of k" {
					t.Errorf("the duplicate: %+v", got)
				}
				if n := s.times("k"); n != 2 { // its route says that this is safe
					t.Errorf("executed %d times, want once by each node", n)
				}
				_, text := get(t.Context(), client, b.internal+"/metrics")
				for _, series := range []string{`probate_takeovers_total{reason="executor fenced"} 1`, `probate_fences_total{reason="probe"} 1`} {
					if !strings.Contains(text, series) {
						t.Errorf("no series %s", series)
					}
				}
			})

			t.Run("EndWithoutLosingAnAnswer", func(t *testing.T) {
				s, client := newService(t), browser(t)
				p := startProgram(t, "--config", configure(t, at, s.URL))
				ready(t, client, p.public)
				got := make(chan answer, 1)
				go func() { got <- order(context.WithoutCancel(t.Context()), client, p.public, "last", "hold") }()
				<-s.begun
				p.signal(t, syscall.SIGTERM)
				await(t, "readiness fails", func() bool {
					status, _ := get(t.Context(), client, p.internal+"/probe")
					return status == http.StatusServiceUnavailable
				})
				close(s.release)
				if a := <-got; a.status != http.StatusCreated || a.how != "executed" {
					t.Errorf("%+v", a)
				}
				<-p.ended
				if code := p.cmd.ProcessState.ExitCode(); code != exitDone {
					t.Errorf("exit code %d", code)
				}
			})
		})
	}
}

// TestPostgres is what the commands do on a PostgreSQL store.
func TestPostgres(t *testing.T) {
	t.Parallel()
	cluster := postgrestest.Shared(t)

	t.Run("IsMigratedOnlyWhenAsked", func(t *testing.T) {
		t.Parallel()
		dsn := cluster.Empty(t)
		file := configure(t, dsn, "http://127.0.0.1:1")
		r := invoke(t, nil, "serve", "--config", file)
		if r.code != exitStore || !strings.Contains(r.err, "probate migrate up, or start with serve --migrate") {
			t.Fatalf("%+v", r)
		}
		if v := okJSON(t, "migrate", "status", "--store", dsn); v["schema"] != 0.0 || !strings.Contains(fmt.Sprint(v["advice"]), "migrate up") {
			t.Errorf("status before: %v", v)
		}
		n := startEmbedded(t, "--config", file, "--migrate")
		ready(t, browser(t), n.public)
		if v := okJSON(t, "migrate", "status", "--store", dsn); v["schema"] != v["binary"] || v["table"] != "schema_migrations" {
			t.Errorf("status after: %v", v)
		}
	})

	t.Run("IsTakenBackOnlyWhenMeant", func(t *testing.T) {
		t.Parallel()
		dsn := cluster.Empty(t)
		// DATABASE_URL alone is enough for an operator.
		environ := []string{"DATABASE_URL=" + dsn}
		if r := invoke(t, environ, "migrate", "up"); r.code != exitDone || !strings.Contains(r.out, fmt.Sprint("schema ", newestSchema(t))) {
			t.Fatalf("up: %+v", r)
		}
		if r := invoke(t, environ, "migrate", "down"); r.code != exitUsage || !strings.Contains(r.err, "--yes") {
			t.Errorf("down: %+v", r)
		}
		if r := invoke(t, environ, "migrate", "down", "--yes"); r.code != exitDone {
			t.Errorf("down --yes: %+v", r)
		}
		if r := invoke(t, environ, "migrate", "version"); r.out != fmt.Sprintf("%v\n", newestSchema(t)-1) {
			t.Errorf("version: %+v", r)
		}
	})

	t.Run("IsListedAndExaminedLikeTheEmbeddedOne", func(t *testing.T) {
		t.Parallel()
		dsn := cluster.Database(t)
		s, client := newService(t), browser(t)
		file := configure(t, dsn, s.URL)
		n := startEmbedded(t, "--config", file)
		ready(t, client, n.public)
		if got := order(t.Context(), client, n.public, "k", ""); got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
		found := okJSON(t, "records", "list", "--key", "k", "--store", dsn)["records"].([]any)
		if len(found) != 1 || found[0].(map[string]any)["state"] != "finalized" {
			t.Errorf("records: %v", found)
		}
		if list := okJSON(t, "executors", "list", "--store", dsn)["executors"].([]any); len(list) != 1 {
			t.Errorf("executors: %v", list)
		}
		r := invoke(t, nil, "doctor", "--config", file, "--pooler", "transaction")
		for _, part := range []string{"clock", "statement_timeout is off", "it answers", "synchronous_commit"} {
			if !strings.Contains(r.out, part) {
				t.Errorf("doctor does not say %q", part)
			}
		}
		if r.code != exitFailed { // behind a pooler these timeouts must be set
			t.Errorf("exit code %d", r.code)
		}
		if t.Failed() {
			t.Log(r.out)
		}
		v := okJSON(t, "bench", "--duration", "200ms", "--concurrency", "4", "--store", dsn, "--cluster", "probate")
		if v["failed"] != 0.0 || v["statements_per_request"].(map[string]any)["reserve"] == nil {
			t.Errorf("bench: %v", v)
		}
	})
}

// TestProgram runs main itself.
func TestProgram(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "version", "-o", "json")
	cmd.Env = []string{asProgram + "=1"}
	var out bytes.Buffer
	cmd.Stdout = &out
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), `"schema"`) {
		t.Errorf("%v: %s", err, out.String())
	}
}
