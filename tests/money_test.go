//go:build unix

package tests_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// bank is three processes of examples/money over one PostgreSQL, each with a
// link to it that can fail.
type bank struct {
	t       *testing.T
	db      *sql.DB
	program string
	server  string // of PostgreSQL
	dsn     string

	mu    sync.Mutex
	tells []*teller
	moved map[string]string // by key: the response's body
}

type teller struct {
	*fleet.Process
	link *fleet.Relay
	base string
	slot string
}

func (b *bank) open(name string) *teller {
	b.t.Helper()
	l := &teller{link: fleet.NewRelay(b.t, b.server)}
	cmd := exec.CommandContext(b.t.Context(), b.program)
	cmd.Env = append(os.Environ(), "LISTEN=127.0.0.1:0", "INTERNAL=127.0.0.1:0", "LEASE=8s",
		"DATABASE_URL="+strings.Replace(b.dsn, b.server, l.link.Addr(), 1))
	l.Process = fleet.Start(b.t, name, cmd)
	fleet.Await(b.t, name+" listens", func() bool { return l.Ended() || len(l.Output.Said("listening")) > 0 })
	if l.Ended() {
		b.t.Fatalf("%s does not start", name)
	}
	said := l.Output.Said("listening")[0]
	l.base, l.slot = "http://"+said.Field("public"), said.Field("internal")
	fleet.Await(b.t, name+" serves", func() bool {
		return b.count(`SELECT count(*) FROM probate.executors WHERE slot = $1 AND state = 'active'`, l.slot) == 1
	})
	return l
}

func (b *bank) count(query string, args ...any) (n int64) {
	b.t.Helper()
	if err := b.db.QueryRowContext(context.WithoutCancel(b.t.Context()), query, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// ask sends a transfer once.
func (b *bank) ask(l *teller, key, body string) (status int, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+"/transfers", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Idempotency-Key", key)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(read)
}

// insist asks one after the other, as a client does, until the transfer is made.
func (b *bank) insist(key, body string, at ...*teller) {
	deadline := time.Now().Add(time.Minute)
	for i := 0; time.Now().Before(deadline); i++ {
		if len(at) == 0 {
			b.mu.Lock()
			at = append(at, b.tells...)
			b.mu.Unlock()
		}
		status, text := b.ask(at[i%len(at)], key, body)
		if status == http.StatusCreated {
			b.mu.Lock()
			defer b.mu.Unlock()
			if before, known := b.moved[key]; known && before != text {
				b.t.Errorf("%s: %s after %s", key, text, before)
			}
			b.moved[key] = text
			return
		}
		if status != 0 && status < 500 && status != http.StatusConflict {
			b.t.Errorf("%s: %d %s", key, status, text)
			return
		}
		<-time.After(20 * time.Millisecond) // a client's own pause
	}
	b.t.Errorf("%s: no answer for a minute", key)
}

// interrupted has the victim begin a transfer and come as far as its first
// lock, then does the fault to it, and lets another finish the transfer.
func (b *bank) interrupted(key string, victim, another *teller, fault func()) {
	b.t.Helper()
	const body = `{"from": 1, "to": 2, "amount": 7}`
	lock, err := b.db.BeginTx(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	var locker int
	if err := lock.QueryRowContext(b.t.Context(), `SELECT pg_backend_pid() FROM accounts WHERE id = 1 FOR UPDATE`).Scan(&locker); err != nil {
		b.t.Fatal(err)
	}
	var asking sync.WaitGroup
	asking.Go(func() { b.ask(victim, key, body) })
	fleet.Await(b.t, "the transfer has begun", func() bool {
		return b.count(`
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid))`, locker) > 0
	})
	fault()
	if err := lock.Rollback(); err != nil {
		b.t.Fatal(err)
	}
	b.insist(key, body, another)
	asking.Wait()
	if n := b.count(`SELECT takeovers FROM probate.records WHERE key = convert_to($1, 'UTF8')`, key); n != 1 {
		b.t.Errorf("%s: taken over %d times", key, n)
	}
}

// TestMoney: whatever happens to the processes of examples/money, the sum of
// all accounts stays what it was, and each transfer is made once.
func TestMoney(t *testing.T) {
	t.Parallel()
	cluster := postgrestest.Shared(t)
	dsn := cluster.Database(t)
	b := &bank{
		t: t, db: postgrestest.Open(t, dsn), dsn: dsn, server: cluster.Addr(),
		program: fleet.Build(t, module+"/examples/money"), moved: map[string]string{},
	}
	for _, name := range []string{"a", "b", "c"} {
		b.tells = append(b.tells, b.open(name))
	}
	attested := func() bool {
		return b.count(`SELECT count(*) FROM probate.executors WHERE state = 'active' AND attested_at IS NOT NULL`) == 3
	}
	fleet.Await(t, "all know each other", attested)

	var over atomic.Bool
	defer over.Store(true) // also when a fault ends the test before its time
	var clients sync.WaitGroup
	for c := range 3 {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				from := 3 + rand.IntN(8)
				to := 3 + (from-3+1+rand.IntN(7))%8
				b.insist(fmt.Sprintf("client-%d-%d", c, n), fmt.Sprintf(`{"from": %d, "to": %d, "amount": 1}`, from, to))
			}
		})
	}
	fenced := func(l *teller) func() bool {
		return func() bool {
			return b.count(`SELECT count(*) FROM probate.executors WHERE slot = $1 AND state = 'fenced'`, l.slot) == 1
		}
	}
	back := func(l *teller) func() bool {
		return func() bool {
			return b.count(`SELECT count(*) FROM probate.executors WHERE slot = $1 AND state = 'active' AND attested_at IS NOT NULL`, l.slot) == 1
		}
	}

	// Nothing is paid to nobody.
	for key, body := range map[string]string{"to-nobody": `{"from": 2, "to": 99, "amount": 7}`, "from-nobody": `{"from": 99, "to": 2, "amount": 7}`} {
		for range 2 { // which is an answer, and stays one
			if status, text := b.ask(b.tells[0], key, body); status != http.StatusConflict || text != "no such account\n" {
				t.Errorf("%s: %d %s", key, status, text)
			}
		}
	}

	// Killed: another takes over, and finds nothing done.
	b.interrupted("killed", b.tells[0], b.tells[1], b.tells[0].Kill)
	again := b.open("a again")
	b.mu.Lock()
	b.tells[0] = again
	b.mu.Unlock()
	fleet.Await(t, "all know each other again", attested)

	// Stopped with its locks held: the server ends its transaction, and when it
	// goes on it can change nothing.
	paused := b.tells[1]
	b.interrupted("paused", paused, b.tells[2], func() { paused.Stop(t) })
	fleet.Await(t, "the paused one is fenced", fenced(paused))
	paused.Cont(t)
	fleet.Await(t, "the paused one is back", back(paused))

	// Parted from the store: it answers its peers, so that only its lease ends
	// it. What it has sent arrives when the link is whole again.
	parted := b.tells[2]
	b.interrupted("parted", parted, b.tells[0], parted.link.Freeze)
	fleet.Await(t, "the parted one is fenced", fenced(parted))
	parted.link.Heal()
	fleet.Await(t, "the parted one is back", back(parted))

	over.Store(true)
	clients.Wait()
	for key := range b.moved {
		if !strings.HasPrefix(key, "client-") {
			for _, l := range b.tells { // the answer is everywhere what it was
				b.insist(key, `{"from": 1, "to": 2, "amount": 7}`, l)
			}
		}
	}
	if n := b.count(`SELECT sum(balance) FROM accounts`); n != 10_000 {
		t.Errorf("the accounts hold %d", n)
	}
	numbers := map[string]bool{}
	for _, text := range b.moved {
		numbers[text] = true
	}
	made := b.count(`SELECT count(*) FROM transfers`)
	if made != int64(len(b.moved)) || len(numbers) != len(b.moved) {
		t.Errorf("%d keys, %d answers, %d transfers", len(b.moved), len(numbers), made)
	}
	if n := b.count(`SELECT balance FROM accounts WHERE id = 2`); n != 1021 {
		t.Errorf("account 2 holds %d after three transfers of 7", n)
	}
	t.Logf("%d transfers", made)
}
