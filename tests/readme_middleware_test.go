//go:build unix

package tests_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// programHead and programTail are what a reader's own program has around the
// README's code.
const (
	programHead = `package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

`
	programTail = `
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var paid atomic.Int64
	err := serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claim, ok := takeover.ClaimFrom(r.Context())
		if !ok || claim.Record.Epoch == 0 || takeover.BeforeEffect(r.Context()) != nil {
			panic("no claim")
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d of %s", paid.Add(1), r.PathValue("id"))
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`
	placeOfTheTenLines = "\t// Here go the ten lines.\n"
)

// runMiddleware compiles the README's Go as a program, and sends it requests.
func (r readme) runMiddleware(t *testing.T) {
	blocks := r.in(t, "Inside your Go service", "go", 2)
	ten, node := blocks[0], blocks[1]
	if lines := strings.Count(ten, "\n"); lines != 10 {
		t.Errorf("the ten lines are %d", lines)
	}
	if strings.Count(node, placeOfTheTenLines) != 1 {
		t.Fatal("there is no place for the ten lines")
	}
	public, internal := freeAddress(t), freeAddress(t)
	ports := strings.NewReplacer("127.0.0.1:8080", public, "127.0.0.1:8081", internal)
	folder := t.TempDir()
	source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "shop")
	text := programHead + strings.Replace(ports.Replace(node), placeOfTheTenLines, ten, 1) + programTail
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fleet.DependOnSources(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = folder
	p := fleet.Start(t, "shop", cmd)
	pay := func(user, key string) (status int, how, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+public+"/orders/7/payments", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User", user)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Idempotency-Status"), string(text)
	}
	fleet.Await(t, "the program serves", func() bool {
		status, _, _ := pay("ann", "first")
		return status == http.StatusCreated || p.Ended()
	})
	for _, c := range []struct {
		user, key string
		status    int
		how, body string
	}{
		{"ann", "first", 201, "replayed", "payment 1 of 7"},
		{"bob", "first", 201, "executed", "payment 2 of 7"},
		{"bob", "first", 201, "replayed", "payment 2 of 7"},
		{"bob", "second", 201, "executed", "payment 3 of 7"},
	} {
		if status, how, body := pay(c.user, c.key); status != c.status || how != c.how || body != c.body {
			t.Errorf("%s, %s: %d %q %q", c.user, c.key, status, how, body)
		}
	}
	if status, _, _ := pay("ann", ""); status != http.StatusBadRequest {
		t.Errorf("without a key: %d", status)
	}
	p.Term(t)
	if err := p.AwaitEnd(t); err != nil {
		t.Errorf("it leaves with %v", err)
	}
}
