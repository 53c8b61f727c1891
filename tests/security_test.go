//go:build unix

package tests_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	driver "github.com/lib/pq"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

const restrictedNode = `
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", allow: [127.0.0.0/8]}
log: {format: json}
routes:
  - {match: {methods: [POST], path: /pay}, upstream: UPSTREAM, operation: pay, principal: none}
`

// TestSecurity holds what SECURITY.md says about the rights of a node's role.
func TestSecurity(t *testing.T) {
	t.Parallel()
	t.Run("ANodeNeedsNoMoreThanItsTables", func(t *testing.T) {
		t.Parallel()
		dsn := restrictedRole(t)
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
		t.Cleanup(service.Close)
		folder := t.TempDir()
		config := filepath.Join(folder, "node.yaml")
		if err := os.WriteFile(config, []byte(strings.ReplaceAll(restrictedNode, "UPSTREAM", service.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
		binary := fleet.Build(t, "../cmd/node")
		n := fleet.Launch(t, func(ctx context.Context, _ fleet.Spec) *exec.Cmd {
			cmd := exec.CommandContext(ctx, binary, "serve", "--config", config)
			cmd.Dir, cmd.Env = folder, []string{"DATABASE_URL=" + dsn}
			return cmd
		}, fleet.Spec{Slot: "restricted"})
		fleet.Await(t, "the node serves", func() bool {
			h, err := n.Health(t.Context())
			return err == nil && h.Ready
		})
		for _, want := range []string{"executed", "replayed"} {
			if got := payOnce(t, "http://"+n.Spec.Public); got != want {
				t.Errorf("answered %q, want %q", got, want)
			}
		}
		n.Term(t)
		if err := n.AwaitEnd(t); err != nil {
			t.Error(err)
		}
		for _, refused := range []string{"denied", "ermission"} { // of PostgreSQL: nothing it does was beyond its rights
			if n.Output.Has(refused) {
				t.Errorf("the node logged %q", refused)
			}
		}
	})
}

// payOnce returns how a request was answered.
func payOnce(t *testing.T, base string) (status string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/pay", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.Header.Get("Idempotency-Status")
}

// restrictedRole makes a role with the rights that SECURITY.md names, shows
// that it has no others, and returns the URL of a database for it.
func restrictedRole(t *testing.T) string {
	t.Helper()
	dsn := postgrestest.Database(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	role := "node_" + strings.TrimPrefix(u.Path, "/")
	owner := postgrestest.Open(t, dsn)
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN",
		"GRANT USAGE ON SCHEMA probate TO " + role,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA probate TO " + role,
	} {
		if _, err := owner.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := owner.ExecContext(ctx, statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	u.User = url.User(role)
	theirs, err := sql.Open("postgres", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, statement := range []string{"CREATE TABLE probate.more (x int)", "DROP TABLE probate.records", "TRUNCATE probate.records"} {
		_, err := theirs.ExecContext(t.Context(), statement)
		if refused, ok := errors.AsType[*driver.Error](err); !ok || refused.Code != "42501" {
			t.Errorf("%s: %v, want insufficient privilege", statement, err)
		}
	}
	return u.String()
}
