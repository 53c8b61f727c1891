package probe_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// fullBacklog is the address of a socket whose queue of connections is full,
// so that the kernel drops further ones: a connect runs into its timeout.
func fullBacklog(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	inet, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("not an IPv4 socket: %T", name)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4(inet.Addr), uint16(inet.Port)).String()
	for range 64 {
		d := net.Dialer{Timeout: 200 * time.Millisecond}
		c, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue is never full")
	return ""
}
