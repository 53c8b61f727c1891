package takeover_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

// fleet is several nodes in this process over one real store. Between any two
// of them there is a network that can fail: real listeners and a proxy between
// them, or, in a bubble of virtual time, a simulated one.
type fleet struct {
	*history
	t     *testing.T
	open  func(t testing.TB, node string) records.Store // one more node's own handle
	build func(f *fleet, m *member, url string)         // gives a member its network
	// virtual: it lives in a bubble, where time goes on when everybody waits.
	virtual bool

	mu    sync.Mutex
	boots []*member // every member that was ever launched
	lines map[[2]string]line
}

// line is the way from one node to another.
type line interface {
	// set changes how the line behaves, for what is under way too.
	set(f fault)
}

// fault is what is wrong with a line.
type fault int

const (
	healthy   fault = iota
	cut             // connections are reset, new ones too
	blackhole       // connections stay, and nothing passes in either direction
	deaf            // requests do not pass, answers would
	mute            // requests pass, answers do not
)

// member is one boot of one node of a fleet.
type member struct {
	*takeover.Node
	fleet  *fleet
	name   string
	config takeover.Config
	gate   *gate
	calls  calls
	asker  takeover.Asker // as the node uses it
	serve  func()         // starts to answer at the URL
	hangUp func()         // stops to answer, at once, whatever is asked
	free   func()         // releases what the network holds
	stop   context.CancelFunc
	ended  chan struct{}
	err    error // of Run, once ended
	log    *testLog
	dead   atomic.Bool
	killed chan struct{} // closed when it is killed
}

// rule runs a test in a bubble: the nodes' clocks go on only when all of them
// wait, so that leases run out at once and nothing depends on the speed of the
// machine.
func rule(t *testing.T, name string, test func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, newBubble(t)) })
	})
}

// newBubble makes an empty fleet over a fresh embedded store and a simulated
// network. It must be called in a bubble.
func newBubble(t *testing.T) *fleet {
	f := newFleetOver(t, embedded(t), simulate)
	f.virtual = true
	return f
}

// newFleet makes an empty fleet over a fresh embedded store and real sockets.
func newFleet(t *testing.T) *fleet { return newFleetOver(t, embedded(t), connect) }

func newFleetOver(t *testing.T, open func(t testing.TB, node string) records.Store, build func(f *fleet, m *member, url string)) *fleet {
	return &fleet{history: &history{}, t: t, open: open, build: build, lines: map[[2]string]line{}}
}

func embedded(t *testing.T) func(t testing.TB, node string) records.Store {
	path := filepath.Join(quickDir(t), "probate.db")
	return func(t testing.TB, _ string) records.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// quickDir is a directory in memory, where there is one: these tests commit
// thousands of times, and whether a commit survives the machine is not what
// they are about.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "probate-test-") //nolint:usetesting // t.TempDir cannot be told where
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// brisk are times for real sockets: quick probes, and a lease that no machine
// is too busy to keep.
func brisk() takeover.Config {
	return takeover.Config{
		Heartbeat: 100 * time.Millisecond, StatementTimeout: 2 * time.Second,
		LeaseTTL: 30 * time.Second, Margin: 5 * time.Second,
		ConfirmDown: 200 * time.Millisecond, ProbeBudget: 4 * time.Second,
		DialTimeout: 500 * time.Millisecond, HeaderTimeout: time.Second,
		SettleRead: 500 * time.Millisecond, SweepEvery: 500 * time.Millisecond, PurgeEvery: time.Second,
		DrainTimeout: 20 * time.Second,
	}
}

// start runs nodes of these names, each its own slot, and waits until they
// serve and know each other.
func (f *fleet) start(config takeover.Config, names ...string) []*member {
	f.t.Helper()
	members := make([]*member, len(names))
	for i, name := range names {
		members[i] = f.launch(config, name)
	}
	f.serving(members...)
	return members
}

// launch starts one node without waiting for it. Without a slot in the
// configuration its name is the slot; without a URL it gets one.
func (f *fleet) launch(config takeover.Config, name string) *member {
	f.t.Helper()
	m := f.prepare(config, name)
	m.serve()
	f.run(m)
	return m
}

// prepare makes a node that does not answer and does not run yet.
func (f *fleet) prepare(config takeover.Config, name string) *member {
	f.t.Helper()
	m := &member{fleet: f, name: name, gate: newGate(f.open(f.t, name)), ended: make(chan struct{}), killed: make(chan struct{}), log: newTestLog(f.t)}
	f.t.Cleanup(func() {
		if err := m.gate.Close(); err != nil {
			f.t.Error(err)
		}
	})
	if config.Slot == "" {
		config.Slot = name
	}
	config.Logger = slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	config.Events = reporter{f.history, name}
	m.config = config
	f.build(f, m, config.URL)
	var err error
	if m.Node, err = takeover.New(m.config, m.gate, m.asker); err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.boots = append(f.boots, m)
	f.mu.Unlock()
	f.t.Cleanup(func() {
		if m.stop != nil {
			m.stop()
			m.gate.openAgain()
			<-m.ended
		}
		m.hangUp()
		m.free()
	})
	return m
}

func (f *fleet) run(m *member) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	m.stop = cancel
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx)
	}()
}

// serving waits until the members serve and know each other.
func (f *fleet) serving(members ...*member) {
	f.t.Helper()
	for _, m := range members {
		f.await(m.name+" serves and knows the others", func() bool {
			if m.Status().State != records.Active {
				return false
			}
			for _, other := range members {
				if _, known := m.Lookup(other.Identity().Executor); !known {
					return false
				}
			}
			return true
		})
	}
}

// attested waits until peers have dialled the members back.
func (f *fleet) attested(members ...*member) {
	f.t.Helper()
	for _, m := range members {
		f.await(m.name+" is attested", func() bool { return !m.row(f.t).AttestedAt.IsZero() })
		for _, other := range members {
			f.await(other.name+" has heard of it", func() bool {
				e, ok := other.Lookup(m.Identity().Executor)
				return ok && !e.AttestedAt.IsZero()
			})
		}
	}
}

// die makes a node vanish as a killed process does: it refuses connections and
// says nothing more to the store. What it runs goes on, unseen, until the test
// ends.
func (f *fleet) die(m *member) {
	m.dead.Store(true)
	m.gate.shut()
	m.hangUp()
}

// kill makes a node die and what it runs end, as far as it looks.
func (f *fleet) kill(m *member) {
	if m.dead.Swap(true) {
		return
	}
	f.die(m) // first, so that nothing is said about the work that ends now
	close(m.killed)
	m.stop()
}

// member finds who is an executor now.
func (f *fleet) member(id records.ExecutorID) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.boots {
		if m.Identity().Executor == id {
			return m
		}
	}
	return nil
}

// startLimit is how long after a heartbeat work may begin.
func (m *member) startLimit() time.Duration {
	c := m.config.WithDefaults()
	limit := c.LeaseTTL - c.Margin
	if c.Policy == records.PolicyProbe {
		limit = min(limit, c.ProbeBudget-time.Second)
	}
	return limit
}

// reboot starts a node again, at the same slot and URL, after its boot has
// died or ended.
func (f *fleet) reboot(m *member) *member {
	f.t.Helper()
	return f.launch(m.config, m.name)
}

// gone stops a node gracefully and waits for it.
func (f *fleet) gone(m *member) error {
	f.t.Helper()
	m.Drain()
	return f.end(m)
}

// end waits for a node's Run to return.
func (f *fleet) end(m *member) error {
	f.t.Helper()
	f.await(m.name+" returns", m.returned)
	return m.err
}

func (m *member) returned() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// row is the member's executor as the store has it.
func (m *member) row(t testing.TB) records.Executor {
	t.Helper()
	return m.executor(t, m.Identity().Executor)
}

func (m *member) executor(t testing.TB, id records.ExecutorID) records.Executor {
	t.Helper()
	e, err := m.gate.Store.LoadExecutor(context.WithoutCancel(t.Context()), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// registered reports whether the member's executor stands in the store.
func (m *member) registered(t testing.TB) bool {
	t.Helper()
	_, err := m.gate.Store.LoadExecutor(context.WithoutCancel(t.Context()), m.Identity().Executor)
	return err == nil
}

// record is the record of a request as the store has it.
func (m *member) record(t testing.TB, req takeover.Request) records.Record {
	t.Helper()
	h, err := m.gate.Store.Load(context.WithoutCancel(t.Context()), req.Key.ID())
	if err != nil {
		t.Fatal(err)
	}
	return h.Record
}

// await polls until a condition holds. In a bubble its time is virtual.
func (f *fleet) await(what string, condition func() bool) {
	f.t.Helper()
	step := 10 * time.Millisecond
	begun, limit := time.Now(), time.Minute
	if f.virtual {
		limit = 15 * time.Minute
	}
	for !condition() {
		if time.Since(begun) > limit {
			f.t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(step)
		if f.virtual { // conditions read the store, and virtual seconds are many
			step = min(step*5/4, 250*time.Millisecond)
		}
	}
}

// pass lets virtual time go by.
func (f *fleet) pass(d time.Duration) {
	f.t.Helper()
	if !f.virtual {
		f.t.Fatal("time passes only in a bubble: wait for a condition")
	}
	<-time.After(d)
	synctest.Wait()
}

// testLog keeps what a node logs and shows it when the test fails.
type testLog struct {
	mu    sync.Mutex
	lines strings.Builder
}

func newTestLog(t testing.TB) *testLog {
	l := &testLog{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.String())
		}
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

func (l *testLog) has(text string) bool { return strings.Contains(l.String(), text) }
