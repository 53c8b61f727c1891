//go:build unix

package postgrestest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Pooler starts PgBouncer in transaction mode in front of a cluster and
// returns what turns a database's URL into one that leads through it. It ends
// with the test, and with the test binary.
func (c *Cluster) Pooler(t testing.TB) (through func(dsn string) string) {
	t.Helper()
	c.own(t)
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where Debian puts it, which is not on everybody's PATH
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatal("PgBouncer is needed to test the store behind a pooler and was not found. Install it: apt-get install pgbouncer")
	}
	dir, err := c.account.makeDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for range 5 {
		port, err := freePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.writePooler(dir, port); err != nil {
			t.Fatal(err)
		}
		through = func(dsn string) string { return moved(dsn, net.JoinHostPort("127.0.0.1", port)) }
		watch, err := c.startPooler(t.Context(), program, dir)
		if err != nil {
			t.Fatal(err)
		}
		if answers(t.Context(), through(c.DSN("postgres"))) {
			t.Cleanup(func() { _ = watch.Close() })
			return through
		}
		_ = watch.Close() // somebody else took the port
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	t.Fatalf("PgBouncer does not answer:\n%s", log)
	return nil
}

// writePooler writes PgBouncer's configuration and its list of users.
func (c *Cluster) writePooler(dir, port string) error {
	_, serverPort, err := net.SplitHostPort(c.admin.Host)
	if err != nil {
		return fmt.Errorf("configure pooler: %w", err)
	}
	ini := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s/users
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
logfile = %s/log
`, serverPort, port, dir, dir)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "ini"), []byte(ini), 0o644),
		os.WriteFile(filepath.Join(dir, "users"), []byte("\"tester\" \"\"\n"), 0o644),
	)
}

// startPooler runs PgBouncer beside a shell that ends it when the pipe closes.
func (c *Cluster) startPooler(ctx context.Context, program, dir string) (closer, error) {
	const script = `trap '' INT TERM HUP; "$1" -q "$2/ini" & cat >/dev/null; kill -KILL $!; wait`
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", script, "watch", program, dir)
	cmd.Dir = dir
	cmd.SysProcAttr = c.account.attributes()
	cmd.SysProcAttr.Setpgid = true
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watch pooler: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch pooler: %w", err)
	}
	return func() error { return errors.Join(stdin.Close(), cmd.Wait()) }, nil
}

// answers polls a database until it answers, for ten seconds at most.
func answers(ctx context.Context, dsn string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for db.PingContext(ctx) != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
