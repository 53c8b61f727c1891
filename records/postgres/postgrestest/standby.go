//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"os"
	"testing"
)

// Standby starts a hot standby of a cluster: a server that follows it, can be
// read and takes no writes. It ends with the test.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	c.own(t)
	s, err := c.standby(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.watch.Close() })
	return s
}

// Promote makes a standby take writes.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.own(t)
	if err := c.control(t.Context(), "promote", "-w"); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) standby(ctx context.Context) (*Cluster, error) {
	dir, err := c.account.makeDir()
	if err != nil {
		return nil, err
	}
	s := &Cluster{binaries: c.binaries, account: c.account, dir: dir}
	_, err = s.run(ctx, "pg_basebackup", "-D", s.data(), "-h", "127.0.0.1", "-p", c.port, "-U", "tester", "-R", "-c", "fast", "--no-sync")
	if err == nil {
		err = s.append("unix_socket_directories = '" + dir + "'\n")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s.serve(ctx)
}
