//go:build linux || darwin

package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

const childPath = "PROBATE_SQLITE_PATH"

// children are the processes that tests start, by role. Each gets an opened
// store, reads orders from stdin and prints what happened to stdout.
var children = map[string]func(s *sqlite.Store, by records.ExecutorID) error{
	"open":    func(*sqlite.Store, records.ExecutorID) error { return nil },
	"write":   childWrite,
	"acks":    childAcks,
	"midway":  childMidway,
	"waiting": childWaiting,
}

func runChild(role string) int {
	if err := serveChild(role); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

func serveChild(role string) error {
	if err := hear(); err != nil { // all start at once
		return err
	}
	s, err := sqlite.Open(context.Background(), sqlite.Config{
		Path: os.Getenv(childPath), Cluster: "test", Patience: time.Minute,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	e, err := s.Register(context.Background(), registration(records.Registration{}))
	if err != nil {
		return err
	}
	if err := children[role](s, e.ID); err != nil {
		return err
	}
	return s.Close()
}

// hear waits for a line on stdin. Without a parent it fails, so that no child
// outlives its test.
func hear() error {
	_, err := orders.ReadString('\n')
	return err
}

var orders = bufio.NewReader(os.Stdin)

// request is one reserve and one finalize.
func request(s *sqlite.Store, by records.ExecutorID) (records.ID, error) {
	got, err := s.Reserve(context.Background(), reservation(by))
	if err != nil {
		return records.ID{}, err
	}
	r := got.Record
	return r.ID, s.Finalize(context.Background(), r.ID, r.Fence(), records.Outcome{
		Response: records.Response{Status: 200, Body: []byte("done")}, Retention: time.Hour,
	})
}

// tally is what a writing child counted.
type tally struct {
	Requests int
	Others   []int64         // how many turns of others passed before each own
	Took     []time.Duration // each request
}

// childWrite writes without a pause until it is told to stop. It says so when
// it has done its share.
func childWrite(s *sqlite.Store, by records.ExecutorID) error {
	var (
		mu   sync.Mutex
		sum  tally
		wg   sync.WaitGroup
		errs = make(chan error, 4)
		done = make(chan struct{})
	)
	sqlite.OnTurn(s, func(others int64) {
		mu.Lock()
		defer mu.Unlock()
		sum.Others = append(sum.Others, others)
	})
	one := func() error {
		start := time.Now()
		_, err := request(s, by)
		mu.Lock()
		defer mu.Unlock()
		sum.Took = append(sum.Took, time.Since(start))
		if sum.Requests++; sum.Requests == share {
			fmt.Println("share done")
		}
		return err
	}
	for range cap(errs) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := one(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	if err := hear(); err != nil {
		return err
	}
	close(done)
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(sum)
}

// childAcks prints each id once its result was acknowledged, for ever.
func childAcks(s *sqlite.Store, by records.ExecutorID) error {
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range cap(errs) {
		wg.Go(func() {
			for {
				id, err := request(s, by)
				if err != nil {
					errs <- err
					return
				}
				fmt.Println(id)
			}
		})
	}
	wg.Wait()
	return <-errs
}

// childMidway stays in the middle of a write transaction.
func childMidway(s *sqlite.Store, by records.ExecutorID) error {
	id, err := request(s, by)
	if err != nil {
		return err
	}
	fmt.Println(id)
	entered := make(chan struct{})
	go func() {
		<-entered
		fmt.Println("midway")
	}()
	leave := make(chan struct{})
	go func() {
		_ = hear()
		close(leave)
	}()
	return sqlite.Occupy(context.Background(), s, entered, leave)
}

// childWaiting says that it is about to write, and does.
func childWaiting(s *sqlite.Store, by records.ExecutorID) error {
	fmt.Println("ready")
	if err := hear(); err != nil {
		return err
	}
	_, err := request(s, by)
	fmt.Println("written")
	return err
}

// child is a process that a test started.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	err *lockedBuffer
}

func start(t testing.TB, role, path string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0]), err: &lockedBuffer{}}
	c.cmd.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path)
	c.cmd.Stderr = c.err
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	c.out.Buffer(nil, 64<<20)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// tell sends a line.
func (c *child) tell() {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, "go"); err != nil {
		c.t.Fatalf("tell child: %v\n%s", err, c.err)
	}
}

// line reads the next line.
func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("child ended: %v\n%s", c.out.Err(), c.err)
	}
	return c.out.Text()
}

// kill kills it the hard way and returns the whole lines it had printed.
func (c *child) kill() (rest []string) {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	for c.out.Scan() {
		rest = append(rest, c.out.Text())
	}
	_ = c.cmd.Wait() // it says: killed
	return rest
}

// wait demands that it ends well.
func (c *child) wait() {
	c.t.Helper()
	_ = c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("child: %v\n%s", err, c.err)
	}
}

// lockedBuffer keeps what a process complains about.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// quantile is the smallest value that at least the share q of all do not exceed.
func quantile[T int64 | time.Duration](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
