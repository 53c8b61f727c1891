package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/probate-dev/probate/records/sqlite"
)

func TestServe(t *testing.T) {
	t.Parallel()

	t.Run("ExecutesOnceAndReplaysOnBothNodes", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		store := sqliteStore(t)
		a := startEmbedded(t, "--config", configure(t, store, s.URL))
		b := startEmbedded(t, "--config", configure(t, store, s.URL))
		ready(t, client, a.public)
		ready(t, client, b.internal)

		first := make(chan answer, 1)
		var asking sync.WaitGroup
		asking.Go(func() { first <- order(t.Context(), client, a.public, "k", "hold") })
		<-s.begun
		second := make(chan answer, 1)
		asking.Go(func() { second <- order(t.Context(), client, b.public, "k", "hold") })
		await(t, "the duplicate waits", func() bool {
			_, text := get(t.Context(), client, b.internal+"/metrics")
			return strings.Contains(text, "probate_waiters 1")
		})
		close(s.release)
		asking.Wait()
		for how, got := range map[string]answer{"executed": <-first, "waited": <-second, "replayed": order(t.Context(), client, b.public, "k", "hold")} {
			if got.err != nil || got.status != http.StatusCreated || got.how != how || got.body != "order of k" {
				t.Errorf("want 201 %s, got %+v", how, got)
			}
		}
		if n := s.times("k"); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})

	t.Run("SaysWhatItDoesAtTheStart", func(t *testing.T) {
		t.Parallel()
		file := configure(t, sqliteStore(t), "http://127.0.0.1:1")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "    reconcile: reexecute\n", "")), 0o600); err != nil {
			t.Fatal(err)
		}
		n := startEmbedded(t, "--config", file, "--slot", "first", "--cluster", "c")
		starting, routes, warnings := n.log.all("starting")[0], n.log.all("route"), n.log.all("route can lock a key")
		if starting["slot"] != "first" || starting["cluster"] != "c" || starting["advertise"] != n.internal {
			t.Errorf("starting: %v", starting)
		}
		if len(routes) != 1 || routes[0]["operation"] != "order-orders" || !strings.Contains(fmt.Sprint(routes[0]["price"]), "share one set of keys") {
			t.Errorf("routes: %v", routes)
		}
		if len(warnings) != 1 || !strings.Contains(fmt.Sprint(warnings[0]["warning"]), "locks its key for 720h") {
			t.Errorf("warnings: %v", warnings)
		}
	})

	t.Run("PassesOnWhatNoRouteRecords", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		file := configure(t, sqliteStore(t), s.URL, "pass_through: "+s.URL)
		n := startEmbedded(t, "--config", file, "--probe-path", "-")
		ready(t, client, n.internal)
		for _, path := range []string{"/elsewhere", "/orders", "/probe"} {
			if status, body := get(t.Context(), client, n.public+path); status != http.StatusCreated || body != "order of " {
				t.Errorf("GET %s: %d %s", path, status, body)
			}
		}
		if n := s.times(""); n != 3 {
			t.Errorf("the service saw %d requests", n)
		}
	})

	t.Run("AnswersEverybodyBeforeItEnds", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		n := startEmbedded(t, "--config", configure(t, sqliteStore(t), s.URL))
		ready(t, client, n.public)
		first := make(chan answer, 1)
		go func() { first <- order(context.WithoutCancel(t.Context()), client, n.public, "k", "hold") }()
		<-s.begun
		n.signals <- syscall.SIGTERM
		await(t, "readiness fails", func() bool {
			status, body := get(t.Context(), client, n.internal+"/probe")
			return status == http.StatusServiceUnavailable && strings.Contains(body, `"draining"`)
		})
		if n.over() {
			t.Fatal("it ended with a request under way")
		}
		close(s.release)
		if got := <-first; got.status != http.StatusCreated || got.how != "executed" {
			t.Errorf("answer: %+v", got)
		}
		<-n.ended
		if n.code != exitDone {
			t.Errorf("exit code %d\n%s", n.code, n.log.text())
		}
	})

	t.Run("FailsReadinessFirstAndGoesOnForTheDelay", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		n := startEmbedded(t, "--config", configure(t, sqliteStore(t), s.URL, "takeover:drain_delay: 5m"))
		ready(t, client, n.public)
		n.signals <- syscall.SIGTERM
		await(t, "readiness fails", func() bool {
			status, _ := get(t.Context(), client, n.public+"/probe")
			return status == http.StatusServiceUnavailable
		})
		if got := order(t.Context(), client, n.public, "late", ""); got.status != http.StatusCreated || got.how != "executed" {
			t.Errorf("a request during the delay: %+v", got)
		} else if !got.last {
			t.Error("its client was not told to look for another node")
		}
		if n.over() {
			t.Error("it ended before the delay was over")
		}
	})

	t.Run("StopsAtOnceAtTheSecondSignal", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		store := sqliteStore(t)
		n := startEmbedded(t, "--config", configure(t, store, s.URL))
		ready(t, client, n.public)
		first := make(chan answer, 1)
		go func() { first <- order(context.WithoutCancel(t.Context()), client, n.public, "k", "hold") }()
		<-s.begun
		n.signals <- syscall.SIGTERM
		n.signals <- syscall.SIGTERM // the same order, twice
		await(t, "it leaves", func() bool { return len(n.log.all("draining")) > 0 })
		if len(n.log.all("stopping at once")) > 0 {
			t.Error("two signals at once were taken for two orders")
		}
		await(t, "it stops", func() bool {
			select {
			case n.signals <- syscall.SIGTERM:
			default:
			}
			return n.over()
		})
		<-first
		if n.code != exitFailed || !strings.Contains(n.log.text(), errStoppedTwice.Error()) {
			t.Errorf("exit code %d\n%s", n.code, n.log.text())
		}
		close(s.release)
		next := startEmbedded(t, "--config", configure(t, store, s.URL))
		ready(t, client, next.public)
		if got := order(t.Context(), client, next.public, "k", "hold"); got.status != http.StatusCreated || got.how != "taken-over" {
			t.Errorf("the cancelled request, sent to another node: %+v", got)
		}
	})
}

func TestServe_RefusesToStart(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, code int, part string, args ...string) {
		t.Helper()
		r := invoke(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0", "--internal.listen", "127.0.0.1:0"}, args...)...)
		if r.code != code || !strings.Contains(r.err, part) {
			t.Errorf("exit code %d, want %d and %q:\n%s", r.code, code, part, r.err)
		}
	}

	t.Run("OnAnotherClustersStore", func(t *testing.T) {
		t.Parallel()
		store := sqliteStore(t)
		ok(t, "migrate", "up", "--store", store, "--cluster", "theirs")
		refused(t, exitStore, `it belongs to "theirs"`, "--store", store, "--cluster", "ours")
		refused(t, exitStore, "fleet rekey", "--store", store, "--cluster", "ours")
	})

	t.Run("WithoutAStore", func(t *testing.T) {
		t.Parallel()
		refused(t, exitStore, "probate doctor says more", "--store", "postgres://127.0.0.1:1/d?sslmode=disable", "--internal.allow", "127.0.0.0/8")
	})

	t.Run("WhenToldToStopFirst", func(t *testing.T) {
		t.Parallel()
		silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		var errs bytes.Buffer
		p := process{
			args: []string{
				"serve", "--listen", "127.0.0.1:0", "--internal.listen", "127.0.0.1:0", "--internal.allow", "127.0.0.0/8",
				"--store", "postgres://" + silent.Addr().String() + "/d?sslmode=disable",
			},
			in: strings.NewReader(""), out: io.Discard, err: &errs, signals: signalled(syscall.SIGHUP, syscall.SIGTERM), deaf: func() {},
		}
		if code := run(t.Context(), p); code != exitFailed || !strings.Contains(errs.String(), errInterrupted.Error()) {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	})

	t.Run("OnAPortThatIsTaken", func(t *testing.T) {
		t.Parallel()
		n := startEmbedded(t, "--config", configure(t, sqliteStore(t), "http://127.0.0.1:1"))
		taken := strings.TrimPrefix(n.public, "http://")
		refused(t, exitFailed, "listen for clients", "--store", sqliteStore(t), "--listen", taken)
	})

	t.Run("InASlotWhoseHolderLives", func(t *testing.T) {
		t.Parallel()
		client := browser(t)
		store := sqliteStore(t)
		n := startEmbedded(t, "--config", configure(t, store, "http://127.0.0.1:1"), "--slot", "s")
		ready(t, client, n.public)
		refused(t, exitRefused, "a slot of its own", "--store", store, "--slot", "s")
	})

	t.Run("OnAFileOfAnotherHost", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "probate.db")
		foreign, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate", BootID: "another-host"})
		if err != nil {
			t.Fatal(err)
		}
		defer foreign.Close()
		if _, err := foreign.Register(t.Context(), registration()); err != nil {
			t.Fatal(err)
		}
		refused(t, exitStore, "For several hosts use PostgreSQL", "--store", "sqlite:"+path)
	})
}

// signalled is signals that have come already.
func signalled(all ...os.Signal) <-chan os.Signal {
	c := make(chan os.Signal, len(all))
	for _, s := range all {
		c <- s
	}
	return c
}

func TestReload(t *testing.T) {
	t.Parallel()

	t.Run("ExchangesRoutesUnderLoadWithoutDroppingARequest", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		file := configure(t, sqliteStore(t), s.URL)
		n := startEmbedded(t, "--config", file)
		ready(t, client, n.public)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		with := string(text) + routeTo(s.URL, "/refunds")

		var sent atomic.Int64
		var loading sync.WaitGroup
		stop := make(chan struct{})
		for w := range 4 {
			loading.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if got := order(context.WithoutCancel(t.Context()), client, n.public, fmt.Sprintf("k-%d-%d", w, i), ""); got.status != http.StatusCreated {
						t.Errorf("during a reload: %+v", got)
						return
					}
					sent.Add(1)
				}
			})
		}
		for i := range 6 {
			now := string(text)
			if i%2 == 0 {
				now = with
			}
			if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
				t.Fatal(err)
			}
			n.signals <- syscall.SIGHUP
			await(t, "it was reloaded", func() bool { return len(n.log.all("routes reloaded")) == i+1 })
			before := sent.Load()
			await(t, "requests go on", func() bool { return sent.Load() > before+4 || t.Failed() })
			status, _ := get(t.Context(), client, n.public+"/refunds")
			if has := status != http.StatusNotFound; has != (i%2 == 0) {
				t.Errorf("after reload %d: GET /refunds is %d", i, status)
			}
		}
		close(stop)
		loading.Wait()
	})

	t.Run("KeepsTheOldRoutesWhenTheFileIsBad", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		file := configure(t, sqliteStore(t), s.URL)
		n := startEmbedded(t, "--config", file)
		ready(t, client, n.public)
		if err := os.WriteFile(file, []byte("cluster: ''\nroutes:\n- operation: x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.signals <- syscall.SIGHUP
		await(t, "the faults are logged", func() bool { return len(n.log.all("configuration not reloaded")) >= 4 })
		if got := order(t.Context(), client, n.public, "k", ""); got.status != http.StatusCreated {
			t.Errorf("after a bad reload: %+v", got)
		}
		if len(n.log.all("routes reloaded")) > 0 {
			t.Error("a bad file was taken")
		}
	})

	t.Run("NamesWhatNeedsARestart", func(t *testing.T) {
		t.Parallel()
		before, after := defaultConfig(), defaultConfig()
		after.Takeover.LeaseTTL, after.Log.Level, after.Wait.Default, after.PassThrough = 1, "warn", 1, "http://x"
		if got := strings.Join(needRestart(before, after), " "); got != "takeover.lease_ttl log.level" {
			t.Errorf("need a restart: %s", got)
		}
	})
}
