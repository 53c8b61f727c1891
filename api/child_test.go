package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/takeover"
)

type timeT = time.Time

// children are what the test binary can be as a process of its own, by its
// first argument.
var children = map[string]func(args []string) int{
	"child-that-panics":    childThatPanics,
	"child-that-is-killed": childThatIsKilled,
}

// startChild starts one and returns once it has told where it serves. It ends
// with the test, if not before.
func startChild(t *testing.T, args ...string) (cmd *exec.Cmd, url string, complaints *strings.Builder) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), exe, args...)
	complaints = &strings.Builder{}
	cmd.Stderr = complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // how it ended says nothing any more
		}
	})
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	return cmd, strings.TrimSpace(url), complaints
}

// doomed is the route that both processes serve.
func doomed() api.Route {
	return api.Route{
		Methods: []string{"POST"}, Path: "/orders/{id}/payments", Operation: "pay in a goroutine",
		Principal: api.Principal{None: true}, Reconciler: takeover.Reexecute, Wait: api.Wait{Default: 15 * time.Second},
	}
}

// childThatPanics serves until its handler kills it. Args: the store's file.
func childThatPanics(args []string) int {
	n := startNode("child", openStore(args[0]))
	defer n.close()
	server := serveDoomed(n, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		go panic("in a goroutine of the handler's")
		select {}
	}))
	defer server.Close()
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func serveDoomed(n *node, handler http.Handler) *httptest.Server {
	a, err := api.New(api.Config{Coordinator: n})
	if err != nil {
		panic(err)
	}
	wrap, err := a.Middleware(doomed())
	if err != nil {
		panic(err)
	}
	router := chi.NewRouter()
	router.With(wrap).Handle(doomed().Path, handler)
	return httptest.NewServer(router)
}

// caseK09Process: it takes its process along; another node takes over.
func caseK09Process(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probate.db")
	survivor := startNode("survivor", openStore(file))
	t.Cleanup(survivor.close)
	l := creates()
	server := serveDoomed(survivor, l)
	t.Cleanup(server.Close)

	cmd, url, complaints := startChild(t, "child-that-panics", file)
	if got := trySend(t, url, request{key: "k"}); got.err == nil {
		t.Errorf("a dead process has answered: %v", got)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(complaints.String(), "in a goroutine of the handler's") {
		t.Fatalf("child: %v\n%s", err, complaints.String())
	}
	got := send(t, server.URL, request{key: "k"}).want(t, 201, "Idempotency-Status: taken-over", "Idempotent-Replayed: ")
	send(t, server.URL, request{key: "k"}).wantReplayOf(t, got)
	l.want(t, 1)
}
