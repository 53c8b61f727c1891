//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Options of a cluster. The zero value is what most tests want.
type Options struct {
	Fsync    bool              // make commits durable, as in production; for benchmarks and durability tests
	Settings map[string]string // more lines of postgresql.conf
}

// Mode says how a cluster is stopped.
type Mode string

const (
	// Fast disconnects clients and shuts down cleanly.
	Fast Mode = "fast"
	// Immediate is a crash: no shutdown, recovery at the next start.
	Immediate Mode = "immediate"
)

// Cluster is a running PostgreSQL server.
type Cluster struct {
	admin *url.URL // of a database that always exists

	// Of a cluster that this package started, else zero.
	binaries string
	account  account
	dir      string // holds the data directory, the log and the socket
	port     string
	watch    io.Closer // closing it ends the cluster

	template struct {
		sync.Once
		err error
	}
	cleared struct { // databases that can be used again
		sync.Mutex
		names []string
	}
}

var shared struct {
	sync.Once
	cluster *Cluster
	err     error
}

// Shared returns the cluster of this test binary, starting it if it is the
// first to ask. Tests that stop the server use [Start].
func Shared(t testing.TB) *Cluster {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it outlives this test
	shared.Do(func() {
		if external := os.Getenv("PROBATE_TEST_DATABASE_URL"); external != "" {
			shared.cluster, shared.err = connect(external)
			return
		}
		shared.cluster, shared.err = start(ctx, Options{})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Start starts a cluster of the test's own. It ends with the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.watch.Close() })
	return c
}

// Stop stops the server and returns once it is down.
func (c *Cluster) Stop(t testing.TB, how Mode) {
	t.Helper()
	c.own(t)
	if err := c.control(t.Context(), "stop", "-m", string(how), "-w"); err != nil {
		t.Fatal(err)
	}
}

// Start starts the server again, on the same port and data, and returns once
// it takes connections.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.own(t)
	if err := c.control(t.Context(), "start", "-w", "-t", "120", "-l", filepath.Join(c.dir, "log")); err != nil {
		t.Fatal(err)
	}
}

// Addr is the host:port the server listens on.
func (c *Cluster) Addr() string { return c.admin.Host }

// DSN is the URL of a database of this cluster.
func (c *Cluster) DSN(database string) string {
	u := *c.admin
	u.Path = "/" + database
	return u.String()
}

// own fails a test that would stop a server that is not ours.
func (c *Cluster) own(t testing.TB) {
	t.Helper()
	if c.dir == "" {
		t.Fatal("this server was given by PROBATE_TEST_DATABASE_URL and is not ours to stop: use postgrestest.Start")
	}
}

func connect(external string) (*Cluster, error) {
	u, err := url.Parse(external)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("PROBATE_TEST_DATABASE_URL: want postgres://user@host:port/database")
	}
	return &Cluster{admin: u}, nil
}

// start makes a data directory and runs a server over it.
func start(ctx context.Context, o Options) (*Cluster, error) {
	binaries, err := findBinaries(ctx)
	if err != nil {
		return nil, err
	}
	account, err := chooseAccount()
	if err != nil {
		return nil, err
	}
	dir, err := account.makeDir()
	if err != nil {
		return nil, err
	}
	c := &Cluster{binaries: binaries, account: account, dir: dir}
	if err := c.initialize(ctx, o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c.serve(ctx)
}

// serve runs the server over its data directory, and its watch. Another
// process may take the port in between, so it tries again.
func (c *Cluster) serve(ctx context.Context) (*Cluster, error) {
	var err error
	if c.watch, err = c.watchdog(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	for range 5 {
		if err = c.listen(ctx); err == nil {
			return c, nil
		}
	}
	return nil, errors.Join(err, c.watch.Close())
}

// initialize makes the data directory and its settings.
func (c *Cluster) initialize(ctx context.Context, o Options) error {
	_, err := c.run(ctx, "initdb", "-D", c.data(), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	settings := map[string]string{
		"listen_addresses":        "'127.0.0.1'",
		"unix_socket_directories": "'" + c.dir + "'",
		"max_connections":         "200",
		"shared_buffers":          "'64MB'",
		"log_min_messages":        "warning",
		"log_min_error_statement": "panic",
		"wal_level":               "replica",
		"checkpoint_timeout":      "'15min'",
		"max_wal_size":            "'1GB'",
		"fsync":                   onOff(o.Fsync),
		"full_page_writes":        onOff(o.Fsync),
	}
	maps.Copy(settings, o.Settings)
	var conf strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&conf, "%s = %s\n", name, value)
	}
	return c.append(conf.String())
}

// append adds lines to the settings.
func (c *Cluster) append(lines string) error {
	f, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	_, err = f.WriteString(lines)
	return errors.Join(err, f.Close())
}

// watchdog starts a shell that waits until this process closes a pipe, or
// dies, and then ends the cluster and removes its directory. It leads its own
// process group, so that an interrupt from the terminal does not end it first.
func (c *Cluster) watchdog(ctx context.Context) (io.Closer, error) {
	const script = `trap '' INT TERM HUP; cat >/dev/null; "$1" -D "$2/data" -m immediate -w stop >/dev/null 2>&1; rm -rf "$2"`
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "watch", filepath.Join(c.binaries, "pg_ctl"), c.dir)
	cmd.Dir = c.dir
	cmd.SysProcAttr = c.account.attributes()
	cmd.SysProcAttr.Setpgid = true
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watch cluster: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch cluster: %w", err)
	}
	return closer(func() error { return errors.Join(stdin.Close(), cmd.Wait()) }), nil
}

type closer func() error

// Close runs the function.
func (c closer) Close() error { return c() }

// listen starts the server on a port that was free a moment ago.
func (c *Cluster) listen(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	c.port = port
	c.admin = &url.URL{
		Scheme:   "postgres",
		User:     url.User("tester"),
		Host:     net.JoinHostPort("127.0.0.1", c.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return c.control(ctx, "start", "-w", "-t", "120", "-l", filepath.Join(c.dir, "log"))
}

// freePort is a port of loopback that nobody had a moment ago.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choose port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return "", fmt.Errorf("choose port: %w", err)
	}
	return port, nil
}

// moved is a URL that leads to another address.
func moved(dsn, addr string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // ours
	}
	u.Host = addr
	return u.String()
}

// control runs pg_ctl.
func (c *Cluster) control(ctx context.Context, args ...string) error {
	args = append([]string{"-D", c.data(), "-o", fmt.Sprintf("-p %s", c.port)}, args...)
	if out, err := c.run(ctx, "pg_ctl", args...); err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		return fmt.Errorf("%w\n%s\n%s", err, out, log)
	}
	return nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs a program of PostgreSQL as the cluster's account. Its output goes
// through a file: a server started by pg_ctl would keep a pipe open.
func (c *Cluster) run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := os.CreateTemp("", "probate-pg-*")
	if err != nil {
		return "", fmt.Errorf("run %s: %w", program, err)
	}
	defer func() { _ = errors.Join(out.Close(), os.Remove(out.Name())) }()
	cmd := exec.CommandContext(ctx, filepath.Join(c.binaries, program), args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = c.account.attributes()
	cmd.SysProcAttr.Setpgid = true
	cmd.Env = append(withoutPG(os.Environ()), "LC_ALL=C")
	err = cmd.Run()
	said, _ := os.ReadFile(out.Name())
	if err != nil {
		return string(said), fmt.Errorf("run %s: %w: %s", program, err, said)
	}
	return string(said), nil
}

// withoutPG drops what would point PostgreSQL's programs at another server.
func withoutPG(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PG") })
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
