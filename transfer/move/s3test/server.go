//go:build unix

package s3test

import (
	"embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// Server is an S3 server with one bucket. It ends with the test.
type Server struct {
	URL                  string
	AccessKey, SecretKey string
	Bucket               string

	folder string
}

//go:embed testdata/server.mod testdata/server.sum
var module embed.FS

// Start starts a server on a port of its own.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{AccessKey: "tester", SecretKey: "only for tests", Bucket: "data", folder: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(s.folder, "objects", s.Bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	program := build(t)
	// The server does not tell a port that it chose itself, and between
	// finding a free one and listening on it somebody else may.
	for range 5 {
		if s.listen(t, program) {
			return s
		}
	}
	t.Fatal("no port for the S3 server")
	return nil
}

// build returns where the program is.
func build(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, kind := range []string{"mod", "sum"} {
		b, err := module.ReadFile("testdata/server." + kind)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "go."+kind), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-n", "versitygw")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build versitygw: %v\n%s", err, failed.String())
	}
	return strings.TrimSpace(string(out))
}

// listen reports whether the server came up.
func (s *Server) listen(t testing.TB, program string) bool {
	t.Helper()
	address := freeAddress(t)
	s.URL = "http://" + address
	// What S3 keeps beside the bytes goes into a folder, since the folder of
	// temporary files may lie on a file system without extended attributes.
	sidecar := filepath.Join(s.folder, "metadata")
	if err := os.MkdirAll(sidecar, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, //nolint:gosec // built above
		"--port", address, "--access", s.AccessKey, "--secret", s.SecretKey, "--quiet", "--health", "/healthy",
		"posix", "--sidecar", sidecar, filepath.Join(s.folder, "objects"))
	cmd.Dir = s.folder
	p := fleet.Start(t, "versitygw", cmd)
	fleet.Await(t, "the S3 server answers", func() bool { return p.Ended() || healthy(t, s.URL) })
	return !p.Ended()
}

func healthy(t testing.TB, url string) bool {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthy", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(q)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Path is where the server keeps the object of a key.
func (s *Server) Path(key string) string {
	return filepath.Join(s.folder, "objects", s.Bucket, filepath.FromSlash(key))
}

// Leftovers lists the files of uploads that were neither completed nor aborted.
func (s *Server) Leftovers(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.folder, "objects", s.Bucket, ".sgwtmp", "multipart", "*", "*"))
	if err != nil {
		t.Fatal(fmt.Errorf("list uploads: %w", err))
	}
	return found
}
