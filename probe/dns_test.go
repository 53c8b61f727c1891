package probe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
)

// Response codes of RFC 1035 section 4.1.1.
const (
	servFail = 2
	nxDomain = 3
)

// resolver is a name server of a test on a loopback port.
type resolver struct {
	address string
	mu      sync.Mutex
	addrs   map[string][]netip.Addr
	rcode   map[string]byte
}

func newResolver(t *testing.T) *resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &resolver{address: conn.LocalAddr().String(), addrs: map[string][]netip.Addr{}, rcode: map[string]byte{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(r.reply(b[:n]), from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		wg.Wait()
	})
	return r
}

func (r *resolver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", r.address)
	}}
}

func (r *resolver) answer(name string, addrs ...netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs[name] = addrs
}

func (r *resolver) fail(name string, rcode byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rcode[name] = rcode
}

// reply answers the one question of a query (RFC 1035 section 4.1). Names
// that were never told are not there.
func (r *resolver) reply(query []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	end, name := 12, ""
	for query[end] != 0 {
		label := int(query[end])
		name += string(query[end+1:end+1+label]) + "."
		end += 1 + label
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	end += 5
	name = strings.ToLower(name)
	addrs, known := r.addrs[name]
	rcode := r.rcode[name]
	if !known && rcode == 0 {
		rcode = nxDomain
	}
	b := append([]byte(nil), query[:end]...)
	b[2], b[3] = 0x81, 0x80|rcode
	clear(b[6:12])
	for _, a := range addrs {
		if rcode != 0 || (kind == 1) != a.Is4() || (kind != 1 && kind != 28) {
			continue
		}
		b[7]++
		b = append(b, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(a.AsSlice())))
		b = append(b, a.AsSlice()...)
	}
	return b
}

func TestProbeByName(t *testing.T) {
	t.Parallel()
	loopback, second := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	for _, row := range []struct {
		name  string
		setup func(r *resolver)
		port  func(t *testing.T, live string) string
		want  probe.Verdict
	}{
		{"Resolves", func(r *resolver) { r.answer("a.example.", loopback) }, nil, probe.NotRunning},
		{"TriesTheNextAddress", func(r *resolver) { r.answer("a.example.", second, loopback) }, nil, probe.NotRunning},
		{"GoneIsSilent", func(*resolver) {}, nil, probe.Silent},
		{"WithoutAddressesIsSilent", func(r *resolver) { r.answer("a.example.") }, nil, probe.Silent},
		{"ServerFailureIsUnknown", func(r *resolver) { r.fail("a.example.", servFail) }, nil, probe.Unknown},
		{"EveryAddressRefusingIsDown", func(r *resolver) { r.answer("a.example.", loopback, second) }, refusedPort, probe.Down},
		{"OneRefusingAndOneForbiddenIsUnknown", func(r *resolver) {
			r.answer("a.example.", loopback, netip.MustParseAddr("169.254.1.1"))
		}, refusedPort, probe.Unknown},
		{"OneForbiddenAndOneRefusingIsUnknown", func(r *resolver) {
			r.answer("a.example.", netip.MustParseAddr("169.254.1.1"), loopback)
		}, refusedPort, probe.Unknown},
		{"AResetByTheOnlyAddressIsDown", func(r *resolver) { r.answer("a.example.", loopback) }, resetPort, probe.Down},
		{"AResetByOneOfTwoIsUnknown", func(r *resolver) { r.answer("a.example.", loopback, second) }, resetPort, probe.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newNode(t, 1, nil)
			r := newResolver(t)
			row.setup(r)
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(a.executor.URL, "http://"))
			if row.port != nil {
				port = row.port(t, port)
			}
			a.executor.URL = "http://a.example:" + port
			c := newClient(t, func(c *probe.ClientConfig) { c.Resolver = r.resolver() })
			if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != row.want {
				t.Errorf("got %+v, want %v", o, row.want)
			}
		})
	}
}

func refusedPort(t *testing.T, _ string) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(refusing(t))
	return port
}

func resetPort(t *testing.T, _ string) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(answering(t, reset), "http://"))
	return port
}

// TestProbeOneSilentAddress: a refusal by one address does not make an
// executor down whose other address is merely slow.
func TestProbeOneSilentAddress(t *testing.T) {
	t.Parallel()
	busy := fullBacklog(t)
	_, port, _ := net.SplitHostPort(busy)
	silent, refused := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	for _, order := range [][]netip.Addr{{silent, refused}, {refused, silent}} {
		r := newResolver(t)
		r.answer("a.example.", order...)
		a := newNode(t, 1, nil)
		a.executor.URL = "http://a.example:" + port
		c := newClient(t, func(c *probe.ClientConfig) {
			impatient(c)
			c.Resolver = r.resolver()
		})
		if o := c.Probe(t.Context(), a.executor, recordID(1), 1); o.Verdict != probe.Silent || !errors.Is(o.Err, probe.ErrNoConnection) {
			t.Errorf("got %+v", o)
		}
	}
}

// TestWatchForgetsAFailedDial: the next watch dials anew.
func TestWatchForgetsAFailedDial(t *testing.T) {
	t.Parallel()
	r := newResolver(t)
	a := newNode(t, 1, nil)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(a.executor.URL, "http://"))
	a.executor.URL = "http://a.example:" + port
	c := newClient(t, func(c *probe.ClientConfig) { c.Resolver = r.resolver() })
	if o := c.Watch(t.Context(), a.executor, recordID(1), 1, time.Second); o.Verdict != probe.Silent {
		t.Errorf("without a name: %+v", o)
	}
	r.answer("a.example.", netip.MustParseAddr("127.0.0.1"))
	if o := c.Watch(t.Context(), a.executor, recordID(1), 1, time.Second); o.Verdict != probe.NotRunning {
		t.Errorf("with a name: %+v", o)
	}
}
