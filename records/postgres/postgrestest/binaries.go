//go:build unix

package postgrestest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// errMissing says what to do about a machine without PostgreSQL.
var errMissing = errors.New(`PostgreSQL 13 or newer is needed to test the store and was not found (initdb, pg_ctl and postgres on PATH,
in /usr/lib/postgresql/*/bin, or where pg_config says). Install it:
    Debian, Ubuntu   apt-get install postgresql
    Fedora, RHEL     dnf install postgresql-server
    Alpine           apk add postgresql
    macOS            brew install postgresql@17
or set PROBATE_TEST_DATABASE_URL to a server whose user may create databases`)

// findBinaries returns the directory that holds the server's programs.
func findBinaries(ctx context.Context) (string, error) {
	for _, dir := range candidates(ctx) {
		if hasServer(dir) {
			return dir, nil
		}
	}
	return "", errMissing
}

// candidates are the directories to look in, in order.
func candidates(ctx context.Context) []string {
	var dirs []string
	if found, err := exec.LookPath("initdb"); err == nil {
		// Debian's programs are reached through links; their neighbours are
		// where the link leads.
		if real, err := filepath.EvalSymlinks(found); err == nil {
			found = real
		}
		dirs = append(dirs, filepath.Dir(found))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		dirs = append(dirs, found...)
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

func hasServer(dir string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version is the first number in a path: 15 for /usr/lib/postgresql/15/bin.
func version(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[0]) // digits only; 0 if there are too many
	return n
}

// Binaries is the directory that holds PostgreSQL's programs.
func Binaries(t testing.TB) string {
	t.Helper()
	dir, err := findBinaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
