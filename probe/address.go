package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"syscall"

	"github.com/probate-dev/probate/records"
)

// ErrForbidden: the address, or the URL it came from, may not be dialled.
// Nothing was sent.
var ErrForbidden = errors.New("address may not be dialled")

// special are ranges that an executor never has a good reason to be in, and
// that answer to anybody who can make this process connect. Each is open only
// to a prefix of the allow-list that is at least as narrow as the range.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),          // this host, unspecified
	netip.MustParsePrefix("::/128"),             // unspecified
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local
	netip.MustParsePrefix("fe80::/10"),          // link-local
	netip.MustParsePrefix("169.254.169.254/32"), // metadata of most clouds
	netip.MustParsePrefix("169.254.170.2/32"),   // credentials of ECS tasks
	netip.MustParsePrefix("fd00:ec2::254/128"),  // metadata of EC2
	netip.MustParsePrefix("100.100.100.200/32"), // metadata of Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // platform of Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // metadata of Oracle Cloud
}

// never holds what is no unicast address.
var never = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"), // multicast
	netip.MustParsePrefix("ff00::/8"),    // multicast
	netip.MustParsePrefix("240.0.0.0/4"), // reserved, broadcast
}

// embedded are prefixes whose last four bytes are an IPv4 address that a
// translator will connect to instead.
var embedded = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), // NAT64, RFC 6052
	netip.MustParsePrefix("::/96"),        // IPv4-compatible, RFC 4291, deprecated
}

// allowList says which addresses may be dialled. An empty one allows every
// unicast address outside the special ranges.
type allowList []netip.Prefix

// permits reports whether a may be dialled.
func (l allowList) permits(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || containing(never, a) != nil {
		return false
	}
	narrowest := 0
	for _, s := range containing(special, a) {
		narrowest = max(narrowest, s.Bits())
	}
	listed := len(l) == 0 && narrowest == 0
	for _, p := range containing(l, a) {
		listed = listed || p.Bits() >= narrowest
	}
	if !listed {
		return false
	}
	if containing(embedded, a) != nil && !a.IsLoopback() {
		b := a.As16()
		return allowList(nil).permits(netip.AddrFrom4([4]byte(b[12:])))
	}
	return true
}

func containing(prefixes []netip.Prefix, a netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	for _, p := range prefixes {
		if p.Contains(a) {
			found = append(found, p)
		}
	}
	return found
}

// control is a [net.Dialer.ControlContext]: it sees the address that the
// socket is about to connect to, after every name was resolved.
func (l allowList) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !l.permits(ap.Addr()) {
		return fmt.Errorf("%w: %s", ErrForbidden, address)
	}
	return nil
}

// target takes an executor's URL apart, or refuses it before anything is
// resolved or dialled.
func (l allowList) target(raw string) (scheme, hostport string, err error) {
	if err := records.ValidateExecutorURL(raw); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !l.permits(a) {
		return "", "", fmt.Errorf("%w: %s", ErrForbidden, a)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), nil
}
