package probe_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
)

// TestCase holds faults that users of comparable systems reported.
func TestCase(t *testing.T) {
	t.Parallel()
	t.Run("K48_WhatIsNotOurHandlerProvesNothing", func(t *testing.T) {
		t.Parallel()
		var followed atomic.Int64
		elsewhere := newNode(t, 2, nil)
		redirect := func(status int) func(*testing.T) string {
			return func(t *testing.T) string {
				t.Helper()
				return withHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/followed" {
						followed.Add(1)
					}
					http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
					if r.Header.Get("Cookie") != "" {
						t.Error("a cookie came back")
					}
					if status == http.StatusSeeOther {
						http.Redirect(w, r, elsewhere.executor.URL+r.URL.Path, status)
						return
					}
					http.Redirect(w, r, "/followed", status)
				}))
			}
		}
		for name, at := range map[string]func(*testing.T) string{
			"503":                  func(t *testing.T) string { t.Helper(); return withStatus(t, 503) },
			"404":                  func(t *testing.T) string { t.Helper(); return withStatus(t, 404) },
			"BareAccept":           func(t *testing.T) string { t.Helper(); return answering(t, saying("")) },
			"BareAcceptCutsAnswer": func(t *testing.T) string { t.Helper(); return answering(t, saying("HTTP/1.1 2")) },
			"301":                  redirect(http.StatusMovedPermanently),
			"302":                  redirect(http.StatusFound),
			"303ToAnotherNode":     redirect(http.StatusSeeOther),
			"307":                  redirect(http.StatusTemporaryRedirect),
			"308":                  redirect(http.StatusPermanentRedirect),
		} {
			a := newNode(t, 1, nil)
			a.executor.URL = at(t)
			c := newClient(t, nil)
			for range 2 { // the second time there might be a cookie
				if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != probe.Unknown || o.Alive() {
					t.Errorf("%s: %+v", name, o)
				}
			}
			if o := c.Watch(t.Context(), a.executor, recordID(1), 1, time.Second); o.Verdict != probe.Unknown {
				t.Errorf("%s: watch: %+v", name, o)
			}
		}
		if followed.Load() != 0 || elsewhere.accepted.Load() != 0 {
			t.Error("a redirect was followed")
		}
	})

	t.Run("K49_RefusedBeforeDialling", func(t *testing.T) {
		t.Parallel()
		a := newNode(t, 1, nil)
		host := strings.TrimPrefix(a.executor.URL, "http://")
		for _, url := range []string{
			"http://169.254.169.254",
			"http://169.254.169.254:80",
			"http://[::ffff:169.254.169.254]",
			"http://[fd00:ec2::254]",
			"http://user:password@" + host,
			"http://" + host + "/latest/meta-data",
			"http://" + host + "/",
			"http://" + host + "?x=y",
			"http://" + host + "#x",
			"gopher://" + host,
			"file:///etc/passwd",
		} {
			e := a.executor
			e.URL = url
			c := newClient(t, nil)
			if o := c.Probe(t.Context(), e, recordID(1), 1); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrForbidden) {
				t.Errorf("%s: %+v", url, o)
			}
			if o := c.Watch(t.Context(), e, recordID(1), 1, time.Second); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrForbidden) {
				t.Errorf("%s: watch: %+v", url, o)
			}
			if w := c.Witness(t.Context(), e, a.executor.ID); w.Heard.Alive() || !errors.Is(w.Heard.Err, probe.ErrForbidden) {
				t.Errorf("%s: witness: %+v", url, w)
			}
		}
		if n := a.accepted.Load(); n != 0 {
			t.Errorf("%d connections were made", n)
		}
	})

	t.Run("K49_ARebindingName", func(t *testing.T) {
		t.Parallel()
		a := newNode(t, 1, nil)
		_, port, err := net.SplitHostPort(strings.TrimPrefix(a.executor.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		a.executor.URL = "http://a.example:" + port
		r := newResolver(t)
		r.answer("a.example.", netip.MustParseAddr("127.0.0.1"))
		c := newClient(t, func(c *probe.ClientConfig) { c.Resolver = r.resolver() })
		if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != probe.NotRunning {
			t.Fatalf("before: %+v", o)
		}
		for _, addr := range []string{"169.254.169.254", "0.0.0.0", "::ffff:169.254.169.254"} {
			r.answer("a.example.", netip.MustParseAddr(addr))
			if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrForbidden) {
				t.Errorf("%s: %+v", addr, o)
			}
		}
		// A list without loopback: the name leads to a live listener that is
		// not to be reached.
		r.answer("a.example.", netip.MustParseAddr("127.0.0.1"))
		before := a.accepted.Load()
		c = newClient(t, func(c *probe.ClientConfig) {
			c.Resolver, c.Allow = r.resolver(), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		})
		if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrForbidden) {
			t.Errorf("outside the list: %+v", o)
		}
		if o := c.Watch(t.Context(), a.executor, recordID(1), 1, time.Second); o.Verdict != probe.Unknown || !errors.Is(o.Err, probe.ErrForbidden) {
			t.Errorf("outside the list: watch: %+v", o)
		}
		if a.accepted.Load() != before {
			t.Error("a connection was made")
		}
	})
}

// TestInvariant holds the protocol's invariants that this package can show.
func TestInvariant(t *testing.T) {
	t.Parallel()
	t.Run("I10_ProbesChangeNothing", func(t *testing.T) {
		t.Parallel()
		a := newNode(t, 1, nil)
		defer a.running.begin(recordID(1))()
		c := newClient(t, nil)
		want := map[int]probe.Verdict{1: probe.Running, 2: probe.NotRunning}
		for range 3 {
			for id, want := range want {
				c.Watch(t.Context(), a.executor, recordID(id), 1, time.Millisecond)
				c.Witness(t.Context(), a.executor, a.executor.ID)
				if o := c.Probe(t.Context(), a.executor, recordID(id), 1); o.Verdict != want {
					t.Errorf("record %d: %+v", id, o)
				}
			}
		}
		a.running.mu.Lock()
		defer a.running.mu.Unlock()
		if len(a.running.entries) != 1 {
			t.Errorf("%d entries", len(a.running.entries))
		}
	})
}
