package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/takeover"
)

type demoCmd struct {
	Dataflow bool  `help:"Let a file be copied instead, and kill the node that copies it half way."`
	Size     int64 `default:"200" placeholder:"MB" help:"With --dataflow: how large the file is, in megabytes."`

	Store string `placeholder:"DSN" help:"Play on this PostgreSQL, such as postgres://…; what is written to it expires after a minute. Default: a SQLite file."`
}

// Help is shown below the flags.
func (demoCmd) Help() string {
	return `Starts three nodes, a balancer in front of them and a ledger behind them, all on loopback and on ports that are free. Then it
lets a payment be made, kills the node that makes it after the ledger has booked and before it has answered, and shows what the
other nodes do about it. It ends what it has started, removes its files, and fails if anything came out otherwise than claimed.

With --dataflow there is a source with a file, a folder as the sink and a control plane instead of the ledger. The node that copies
the file is killed half way; another one takes the copy over and goes on from its last checkpoint.

PostgreSQL is migrated first, if it must be. Give it a database of its own: its fleet is called "demo".

Examples:

  probate demo
  probate demo --dataflow
  probate demo --store postgres://probate@localhost/demo`
}

// demoLimit ends a demo that does not come to its end.
const demoLimit = 2 * time.Minute

// Run implements the subcommand.
func (c *demoCmd) Run(ctx context.Context, e *env) (err error) {
	if c.Size < 1 || c.Size > demoSizeLimit {
		return usageError{fmt.Errorf("--size: %d megabytes; want 1 to %d", c.Size, demoSizeLimit)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, errors.New("the demo took too long"))
	defer cancel()
	s := &story{env: e, slots: map[records.ExecutorID]string{}}
	if !e.json {
		s.live = &text{w: e.out}
	}
	play := s.play
	if c.Dataflow {
		s.flow = newDemoFlow(s, c.Size<<20)
		play = s.flow.play
	}
	err = s.stage(ctx, c.Store)
	if err == nil {
		err = play(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if s.flush(); err != nil {
		if !errors.Is(err, errInterrupted) {
			err = fmt.Errorf("%w\n%s", err, s.words())
		}
		return errors.Join(err, s.strike())
	}
	if err := s.strike(); err != nil {
		return err
	}
	if err := e.show(s.report, func(w *text) { s.report.write(e, w) }); err != nil {
		return err
	}
	return s.report.verdict()
}

// story is a demo under way.
type story struct {
	env    *env
	config Config // by which the store is opened here
	folder string
	store  records.Store

	ledger   *ledger   // nil in the demo of a data flow
	flow     *demoFlow // nil in the other one
	balancer *balancer
	nodes    []*actor

	script
	slots  map[records.ExecutorID]string
	report demoReport
}

// stage starts everything and returns when the nodes know each other.
func (s *story) stage(ctx context.Context, dsn string) error {
	var err error
	if s.folder, err = os.MkdirTemp("", "probate-demo"); err != nil {
		return err
	}
	s.begun = time.Now()
	s.config = defaultConfig()
	s.config.Cluster, s.config.Store = "demo", "sqlite:"+filepath.Join(s.folder, "probate.db")
	if dsn != "" {
		s.config.Store = dsn
		if _, embedded := sqlitePath(dsn); embedded {
			return usageError{errors.New("--store: the demo makes a SQLite file by itself; name a PostgreSQL, or nothing")}
		}
		if err := postgres.Migrate(ctx, dsn); err != nil {
			return err
		}
	}
	s.report.Store = s.config.storeName()
	if s.store, err = openStore(ctx, s.config, noLog, nil); err != nil {
		return err
	}
	if s.flow != nil {
		err = s.flow.open(ctx)
	} else {
		s.ledger, err = openLedger(ctx, &s.script)
	}
	if err != nil {
		return err
	}
	for i := range 3 {
		a, err := s.start(ctx, fmt.Sprintf("node-%d", i+1))
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, a)
	}
	for _, a := range s.nodes {
		if err := a.awaitListening(ctx); err != nil {
			return err
		}
		s.say(a.name, "process %d, asked about its records at %s", a.pid(), a.internal)
		s.report.Nodes = append(s.report.Nodes, demoNode{Name: a.name, Pid: a.pid()})
	}
	if s.balancer, err = openBalancer(ctx, s.nodes); err != nil {
		return err
	}
	if err := s.acquaint(ctx); err != nil {
		return err
	}
	s.say("fleet", "each node was reached by another at its URL; store %s", s.report.Store)
	s.flush()
	return nil
}

// acquaint waits until every node was reached by another one, and all of them
// have read who the others are, which a heartbeat does.
func (s *story) acquaint(ctx context.Context) error {
	beats := map[records.ExecutorID]int64{}
	return s.await(ctx, "the nodes know each other", func() bool {
		list, err := s.store.ListExecutors(ctx, records.Active)
		if err != nil {
			return false
		}
		known := 0
		for _, x := range list {
			if !slices.ContainsFunc(s.nodes, func(a *actor) bool { return a.internal == x.URL }) {
				continue // of another time
			}
			s.name(x.ID, x.Slot)
			switch seen, ok := beats[x.ID]; {
			case !ok && len(beats) < len(s.nodes) && !x.AttestedAt.IsZero():
				beats[x.ID] = x.Beat
			case ok && len(beats) == len(s.nodes) && x.Beat >= seen+2:
				known++
			}
		}
		return known == len(s.nodes)
	})
}

// await polls until a condition holds. A node that ends early ends the wait.
func (s *story) await(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		for _, a := range s.nodes {
			if a.ended() && !a.killed {
				return fmt.Errorf("%s ended before %s", a.name, what)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s", what)
		}
	}
	return nil
}

// strike ends everything that was started and removes every file.
func (s *story) strike() error {
	var faults []error
	if s.balancer != nil {
		s.balancer.close()
	}
	if s.ledger != nil {
		s.ledger.release() // or a node would wait for its answer before it leaves
	}
	for _, a := range s.nodes {
		a.term()
	}
	for _, a := range s.nodes {
		faults = append(faults, a.awaitEnd())
	}
	if s.ledger != nil {
		s.ledger.close()
	}
	if s.flow != nil {
		s.flow.close()
	}
	if s.store != nil {
		faults = append(faults, s.store.Close())
	}
	if s.folder != "" {
		faults = append(faults, os.RemoveAll(s.folder))
	}
	return errors.Join(faults...)
}

// words are the last ones of the nodes, for a demo that failed.
func (s *story) words() string {
	var b strings.Builder
	for _, a := range s.nodes {
		for _, line := range a.lastWords() {
			fmt.Fprintf(&b, "%s: %s\n", a.name, line)
		}
	}
	return b.String()
}

const (
	demoPath  = "/orders/1042/payments"
	demoBody  = `{"amount":4200,"currency":"EUR"}`
	otherBody = `{"amount":9900,"currency":"EUR"}`
)

// play lets happen what the demo is about.
func (s *story) play(ctx context.Context) error {
	key := uuid.NewString()
	one := &customer{name: "client 1", story: s, key: key}
	two := &customer{name: "client 2", story: s, key: key}
	defer one.leave()
	defer two.leave()

	one.pay(ctx, demoBody)
	if err := s.await(ctx, "the ledger has booked", s.ledger.holds); err != nil {
		return err
	}
	s.flush()
	held, owner, err := s.owner(ctx, key)
	if err != nil {
		return err
	}
	two.pay(ctx, demoBody)
	if err := s.duplicateWaits(ctx, two, owner, held); err != nil {
		return err
	}
	if err := s.kill(ctx, owner, held, "after the ledger has booked and before it could tell anybody"); err != nil {
		return err
	}
	if err := s.await(ctx, "both clients have an answer", func() bool { return one.answered() && two.answered() }); err != nil {
		return err
	}
	return s.conclude(ctx, one, two, held, owner)
}

// owner finds the record of the payment, and who executes it.
func (s *story) owner(ctx context.Context, key string) (records.Held, *actor, error) {
	page, err := s.store.List(ctx, records.Filter{Key: &key, Limit: 1})
	for err == nil && len(page.Records) == 0 && page.More {
		page, err = s.store.List(ctx, records.Filter{Key: &key, Limit: 1, After: page.Next})
	}
	if err != nil {
		return records.Held{}, nil, err
	}
	if len(page.Records) == 0 {
		return records.Held{}, nil, errors.New("the payment left no record")
	}
	held, err := s.store.Load(ctx, page.Records[0].ID)
	if err != nil {
		return held, nil, err
	}
	a, err := s.executorOf(held)
	return held, a, err
}

// executorOf is the node that a record in progress names.
func (s *story) executorOf(held records.Held) (*actor, error) {
	i := slices.IndexFunc(s.nodes, func(a *actor) bool { return a.internal == held.Record.ExecutorURL })
	if i < 0 {
		return nil, fmt.Errorf("the record is executed at %q, where no node is", held.Record.ExecutorURL)
	}
	s.say("store", "the record says: in progress, executed by %s at epoch %d, ask %s", s.nodes[i].name, held.Record.Epoch, held.Record.ExecutorURL)
	return s.nodes[i], nil
}

// duplicateWaits shows that the duplicate waits, on another node than the
// owner.
func (s *story) duplicateWaits(ctx context.Context, two *customer, owner *actor, held records.Held) error {
	var where *actor
	err := s.await(ctx, "the duplicate waits", func() bool {
		for _, a := range s.nodes {
			if a != owner && a.waiting(ctx) > 0 {
				where = a
			}
		}
		return where != nil || two.answered()
	})
	if err != nil {
		return err
	}
	s.claim("a duplicate at another node waits while the payment is made", where != nil && !two.answered(), "")
	if where != nil {
		s.say(where.name, "the same key again: a duplicate. It waits here, not at a time-out")
	}
	return s.vouch(ctx, owner, held)
}

// vouch asks the owner whether it runs the record.
func (s *story) vouch(ctx context.Context, owner *actor, held records.Held) error {
	seen, err := ask(ctx, s.config, s.store, held.Executor, held.Record.ID, held.Record.Epoch)
	if err != nil {
		return err
	}
	s.say("probe", "%s, do you run it? %s, signed", owner.name, seen.Verdict)
	s.claim("its owner says so itself, signed", seen.Verdict.Signed() && seen.Verdict.String() == "running", seen.Verdict.String())
	s.flush()
	return nil
}

// kill ends the owner as a crash does, at a moment that is worth telling.
func (s *story) kill(ctx context.Context, owner *actor, held records.Held, moment string) error {
	at := s.markKill()
	owner.kill()
	s.tell(at, owner.name, "killed (SIGKILL, process %d), %s", owner.pid(), moment)
	seen, err := ask(ctx, s.config, s.store, held.Executor, held.Record.ID, held.Record.Epoch)
	if err != nil {
		return err
	}
	s.say("probe", "%s, do you run it? %s", owner.name, seen.Verdict)
	s.flush()
	return nil
}

// conclude asks twice more and compares what was said with what was claimed.
func (s *story) conclude(ctx context.Context, one, two *customer, held records.Held, owner *actor) error {
	first, second := one.last(), two.last()
	took := max(first.at, second.at) - s.killed()
	s.report.TakeoverMS = took.Milliseconds()
	s.flush()

	h, err := s.store.Load(ctx, held.Record.ID)
	if err != nil {
		return err
	}
	if err := s.claimFenced(ctx, owner, held); err != nil {
		return err
	}
	s.claim("its record was taken over at the next epoch", h.Record.Epoch == held.Record.Epoch+1 && h.Record.Executor != held.Record.Executor && h.Record.State == records.Finalized,
		fmt.Sprintf("%s at epoch %d", h.Record.State, h.Record.Epoch))
	s.claim("the ledger was asked before anything was done again", s.ledger.asked() > 0, "")
	s.claim("both clients have one answer", first.same(second) && first.status == http.StatusCreated, fmt.Sprintf("%d and %d", first.status, second.status))

	again := &customer{name: "client 1", story: s, key: one.key}
	defer again.leave()
	again.pay(ctx, demoBody)
	if err := s.await(ctx, "the replay is there", again.answered); err != nil {
		return err
	}
	replay := again.last()
	s.claim("a later retry gets the same bytes, marked as replayed", replay.same(first) && replay.header.Get("Idempotent-Replayed") == "true", fmt.Sprint(replay.status))

	other := &customer{name: "client 1", story: s, key: one.key}
	defer other.leave()
	other.pay(ctx, otherBody)
	if err := s.await(ctx, "the other payment is refused", other.answered); err != nil {
		return err
	}
	s.claim("the key with another payment is refused, and nothing is done", other.last().status == http.StatusUnprocessableEntity, fmt.Sprint(other.last().status))

	s.report.Ledger = s.ledger.lines()
	s.claim("the ledger was sent the payment once", s.ledger.received() == 1, fmt.Sprintf("%d times", s.ledger.received()))
	s.claim("the payment was applied exactly once", len(s.report.Ledger) == 1, fmt.Sprintf("%d times", len(s.report.Ledger)))
	s.flush()
	return nil
}

// claimFenced notes whether the owner was found dead as it was claimed.
func (s *story) claimFenced(ctx context.Context, owner *actor, held records.Held) error {
	dead, err := s.store.LoadExecutor(ctx, held.Executor.ID)
	if err != nil {
		return err
	}
	s.claim(owner.name+" was declared dead by a probe, not by a time-out",
		dead.State == records.Fenced && dead.FencedReason != takeover.ReasonLeaseExpired, fmt.Sprintf("%s: %s", dead.State, dead.FencedReason))
	return nil
}
