package takeover_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/recordstest"
	"github.com/probate-dev/probate/takeover"
)

// TestSoak runs a fleet of three for minutes of virtual time while its links,
// its ways to the store and its processes fail at random, and then checks that
// every invariant that can be seen from outside has held.
func TestSoak(t *testing.T) {
	t.Parallel()
	for _, policy := range []records.Policy{records.PolicyProbe, records.PolicyLease} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			seed := cmp.Or(*soakSeed, rand.Uint64())
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) { soak(t, policy, seed) })
		})
	}
}

var (
	soakFor  = flag.Duration("soak.for", 2*time.Minute, "virtual time of the soak")
	soakSeed = flag.Uint64("soak.seed", 0, "seed of the soak's faults; 0: at random")
)

const soakClients = 6

// turmoil is a fleet at which everything fails now and then.
type turmoil struct {
	*fleet
	config takeover.Config
	ledger *ledger

	mu      sync.Mutex
	dice    *rand.Rand
	present map[string]*member // by name; the boot that clients find
	asked   []string           // keys
	told    map[string]string  // by key: the body that some client was given from the store
	work    sync.WaitGroup
}

func soak(t *testing.T, policy records.Policy, seed uint64) {
	f := newBubble(t)
	z := &turmoil{
		fleet: f, config: takeover.Config{Policy: policy, Takeovers: 50}, ledger: newLedger(t, f),
		dice: rand.New(rand.NewPCG(seed, 1)), present: map[string]*member{}, told: map[string]string{},
	}
	over := make(chan struct{})
	var supervisors sync.WaitGroup
	nodes := f.start(z.config, "a", "b", "c")
	for _, m := range nodes {
		z.present[m.name] = m
	}
	for _, m := range nodes {
		supervisors.Go(func() { z.supervise(m, over) })
	}
	z.certain()
	end := time.Now().Add(*soakFor)
	for range soakClients {
		z.work.Go(func() { z.client(end) })
	}
	for time.Now().Before(end) {
		z.mishap()
		<-time.After(z.between(time.Second, 6*time.Second))
	}
	z.work.Wait()
	for len(z.of(tookOver)) == 0 { // chance was kind: go on until it is not
		more := time.Now().Add(*soakFor / 4)
		z.work.Go(func() { z.client(more) })
		for time.Now().Before(more) {
			z.mishap()
			<-time.After(z.between(time.Second, 6*time.Second))
		}
		z.work.Wait()
	}
	z.settle()
	close(over)
	supervisors.Wait()
	z.check(policy)
}

// certain is one mishap that does not depend on the dice: a node is killed
// while it executes what another one waits for.
func (z *turmoil) certain() {
	z.asked = append(z.asked, "0")
	req := patient("0")
	req.Terms.Reconciler = z.ledger
	owner := z.node(0)
	_ = do(owner, req, z.ledger.work(owner, time.Hour))
	z.await("it executes", func() bool { return z.ledger.runs("0") == 1 })
	waiting := do(z.node(1), req, z.ledger.work(z.node(1), time.Second))
	z.await("another waits", func() bool { return z.node(1).Waiting() == 1 })
	z.kill(owner)
	(<-waiting).check(z.t, takeover.TookOver, "")
}

// between rolls the dice.
func (z *turmoil) between(from, to time.Duration) time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	return from + time.Duration(z.dice.Int64N(int64(to-from)))
}

func (z *turmoil) roll(n int) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.dice.IntN(n)
}

func (z *turmoil) node(i int) *member {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.present[string(rune('a'+i%3))]
}

// client asks for keys of its own and of others, one after the other.
func (z *turmoil) client(end time.Time) {
	for time.Now().Before(end) {
		z.mu.Lock()
		key := fmt.Sprint(len(z.asked))
		if len(z.asked) > 0 && z.dice.IntN(3) > 0 {
			key = z.asked[max(0, len(z.asked)-1-z.dice.IntN(8))]
		} else {
			z.asked = append(z.asked, key)
		}
		z.mu.Unlock()
		z.ask(z.node(z.roll(3)), key, z.between(0, 30*time.Second))
		<-time.After(z.between(0, 3*time.Second))
	}
}

func (z *turmoil) ask(m *member, key string, wait time.Duration) (ended bool) {
	req := ask(key)
	req.Wait, req.Terms.Reconciler = wait, z.ledger
	got := <-do(m, req, z.ledger.work(m, z.between(0, 8*time.Second)))
	switch {
	case got.err != nil:
		if !errors.Is(got.err, takeover.ErrNotServing) && !errors.Is(got.err, records.ErrUnavailable) {
			z.t.Errorf("%q: %v", key, got.err)
		}
		return false
	case got.Outcome == takeover.OutcomeUnknown:
		return true
	case got.Record.State != records.Finalized:
		return false
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	body := string(got.Record.Response.Body)
	if before, ok := z.told[key]; ok && before != body {
		z.t.Errorf("I6: %q was answered %q and %q", key, before, body)
	}
	z.told[key] = body
	return true
}

// mishap lets something go wrong, for a while.
func (z *turmoil) mishap() {
	m, other := z.node(z.roll(3)), z.node(z.roll(3))
	lasts := z.between(time.Second, 25*time.Second)
	until := func(heal func()) {
		z.work.Go(func() {
			<-time.After(lasts)
			heal()
		})
	}
	switch z.roll(8) {
	case 0:
		w := z.fleet.between(m, other)
		w.set(fault(1 + z.roll(4)))
		until(func() { w.set(healthy) })
	case 1:
		rest := []*member{z.node(0), z.node(1), z.node(2)}
		z.isolate(m, fault(1+z.roll(4)), rest...)
		until(func() { z.isolate(m, healthy, rest...) })
	case 2:
		until(m.gate.shut())
	case 3:
		until(m.gate.freeze())
	case 4:
		if z.roll(3) == 0 { // the store is away for everybody
			for i := range 3 {
				until(z.node(i).gate.freeze())
			}
		}
	case 5:
		for range 5 {
			m.gate.Once(everyCall[z.roll(len(everyCall))], recordstest.LostReply)
		}
	default:
		z.restart(m, z.roll(3))
	}
}

// supervise runs a node and starts it again whenever it ends, as a supervisor
// of processes does, until told to leave it.
func (z *turmoil) supervise(m *member, end <-chan struct{}) {
	for {
		z.mu.Lock()
		z.present[m.name] = m
		z.mu.Unlock()
		select {
		case <-m.ended:
		case <-m.killed:
		case <-end:
			return
		}
		m.hangUp()
		<-time.After(z.between(500*time.Millisecond, 10*time.Second))
		m = z.reboot(m)
	}
}

// restart ends a node in one of three ways. One that takes too long is killed.
func (z *turmoil) restart(m *member, how int) {
	switch how {
	case 0:
		z.kill(m)
		return
	case 1:
		m.stop()
	case 2:
		m.Drain()
	}
	z.work.Go(func() {
		select {
		case <-m.ended:
		case <-time.After(20 * time.Second):
			z.kill(m)
		}
	})
}

// settle heals everything, and asks until every key has ended.
func (z *turmoil) settle() {
	z.t.Helper()
	z.fleet.mu.Lock()
	lines, boots := z.lines, z.boots
	z.fleet.mu.Unlock()
	for _, l := range lines {
		l.set(healthy)
	}
	for _, m := range boots {
		if !m.dead.Load() {
			m.gate.openAgain()
		}
	}
	z.await("all serve", func() bool {
		for i := range 3 {
			if z.node(i).Status().State != records.Active {
				return false
			}
		}
		return true
	})
	for i, key := range z.asked {
		z.await("key "+key+" ends", func() bool { return z.ask(z.node(i), key, time.Minute) })
	}
}

func (z *turmoil) check(policy records.Policy) {
	z.t.Helper()
	m := z.node(0)
	z.ledger.audit(m, policy)
	for key, body := range z.told {
		if r := m.record(z.t, ask(key)); r.State != records.Finalized || string(r.Response.Body) != body {
			z.t.Errorf("I6: %q was answered %q, and it is %s", key, body, r.State)
		}
	}
	all, err := m.gate.ListExecutors(z.t.Context(), records.Fenced)
	if err != nil {
		z.t.Fatal(err)
	}
	for _, e := range all {
		if e.HeartbeatAt.After(e.FencedAt) {
			z.t.Errorf("I3: %s beat %s after its fence", e.Slot, e.HeartbeatAt.Sub(e.FencedAt))
		}
		if since := e.FencedAt.Sub(e.HeartbeatAt); policy == records.PolicyLease && since < e.LeaseTTL {
			z.t.Errorf("I4: %s was fenced %s after a heartbeat: %s", e.Slot, since, e.FencedReason)
		}
	}
	executions := 0
	for _, e := range z.ledger.keys {
		executions += len(e.executions)
	}
	took := len(z.of(tookOver))
	z.t.Logf("%d keys, %d executions, %d take-overs, %d boots, %d fenced", len(z.asked), executions, took, len(z.boots), len(all))
	if took == 0 || len(all) == 0 {
		z.t.Error("not even the certain mishap is on record")
	}
}
