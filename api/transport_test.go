package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

func TestWire(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	go func() {
		for b := make([]byte, 16); ; {
			if _, err := far.Read(b); err != nil {
				return
			}
		}
	}()
	conn := &counted{Conn: near}
	had := func(info httptrace.GotConnInfo) *wire {
		w := &wire{}
		w.gotConn(info)
		return w
	}
	t.Run("WithoutAConnectionNothingWasSent", func(t *testing.T) {
		if w := (&wire{}); !w.silent() || w.stale() {
			t.Error("it says otherwise")
		}
	})
	t.Run("AKeptConnectionMayBeStale", func(t *testing.T) {
		if w := had(httptrace.GotConnInfo{Conn: conn, Reused: true}); !w.silent() || !w.stale() {
			t.Error("it says otherwise")
		}
	})
	t.Run("AFreshOneIsNot", func(t *testing.T) {
		if w := had(httptrace.GotConnInfo{Conn: conn}); !w.silent() || w.stale() {
			t.Error("it says otherwise")
		}
	})
	t.Run("OneByteIsSomething", func(t *testing.T) {
		w := had(httptrace.GotConnInfo{Conn: conn, Reused: true})
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if w.silent() || w.stale() {
			t.Error("it says otherwise")
		}
	})
	t.Run("CountsBelowTLS", func(t *testing.T) {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if countedBelow(secure) != conn {
			t.Error("not found")
		}
	})
	t.Run("WhatCannotBeCountedMayHaveBeenSent", func(t *testing.T) {
		if w := had(httptrace.GotConnInfo{Conn: near, Reused: true}); w.silent() || w.stale() {
			t.Error("it says otherwise")
		}
	})
}

// brittle is a connection that breaks when told.
type brittle struct {
	net.Conn
	broken *atomic.Bool
}

func (b *brittle) Write(p []byte) (int, error) {
	if b.broken.Load() {
		return 0, syscall.EPIPE
	}
	return b.Conn.Write(p)
}

func TestSender(t *testing.T) {
	t.Parallel()
	var effects atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		effects.Add(1)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	transport := newTransport()
	t.Cleanup(transport.CloseIdleConnections)
	var broken atomic.Bool
	dial, dials := transport.DialContext, 0
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if dials++; dials == 1 && err == nil {
			c := conn.(*counted)
			c.Conn = &brittle{c.Conn, &broken}
		}
		return conn, err
	}
	s := &sender{transport: transport, timeout: time.Minute}
	send := func(ctx context.Context) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	claimed := records.WithExecution(t.Context(), &Execution{&run{x: &exchange{body: []byte("pay")}}})

	t.Run("RefusesWhatHasNoClaim", func(t *testing.T) {
		if _, err := send(t.Context()); err == nil || errors.Is(err, errNotSent) || effects.Load() != 0 {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("TakesAFreshConnectionForADeadOne", func(t *testing.T) {
		for _, dead := range []bool{false, true} {
			broken.Store(dead)
			if got, err := send(claimed); err != nil || got != "pay" {
				t.Errorf("dead connection: %t: %q, %v", dead, got, err)
			}
		}
		if dials != 2 || effects.Load() != 2 {
			t.Errorf("%d effects over %d connections, want 2 over 2", effects.Load(), dials)
		}
	})
	t.Run("SaysThatNothingWasSent", func(t *testing.T) {
		server.Close()
		transport.CloseIdleConnections()
		if _, err := send(claimed); !errors.Is(err, errNotSent) {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("GivesUpAfterItsTimeout", func(t *testing.T) {
		silent, err := (&net.ListenConfig{}).Listen(claimed, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close() // connects, and never answers
		impatient := &sender{transport: transport, timeout: time.Millisecond}
		r, err := http.NewRequestWithContext(claimed, http.MethodPost, "http://"+silent.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := impatient.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, errUpstreamTimeout) {
			t.Errorf("error = %v", err)
		}
	})
}
