package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/probate-dev/probate/records"
)

// advertised is the URL at which peers reach a node whose internal listener
// has got this address.
func (c Config) advertised(listener string) string {
	if c.Internal.Advertise != "" {
		return c.Internal.Advertise
	}
	host, _, err := net.SplitHostPort(c.Internal.Listen)
	if err != nil {
		return ""
	}
	if isWildcard(host) {
		host = "127.0.0.1" // with SQLite, whose nodes share a host
	}
	_, port, err := net.SplitHostPort(listener)
	if err != nil {
		return ""
	}
	return c.scheme() + "://" + net.JoinHostPort(host, port)
}

func (c Config) scheme() string {
	if c.Internal.TLS.Cert != "" {
		return "https"
	}
	return "http"
}

// allowed are the networks that peers may be dialled in.
func (c Config) allowed() ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, word := range c.Internal.Allow {
		p, err := netip.ParsePrefix(word)
		if a, aErr := netip.ParseAddr(word); aErr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no network such as 10.0.0.0/8", word)
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, nil
}

func (c Config) checkAddresses(s *settings) {
	for path, address := range map[string]string{"listen": c.Listen, "internal.listen": c.Internal.Listen} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			s.doubt(path, "%q: want host:port or :port", address)
		}
	}
	if c.Probe != "-" && !strings.HasPrefix(c.Probe, "/") {
		s.doubt("probe_path", "%q: want a path, or - for none", c.Probe)
	}
	allow, err := c.allowed()
	if err != nil {
		s.doubt("internal.allow", "%v", err)
	}
	if s.faulty["internal.listen"] || s.faulty["internal.allow"] {
		return
	}
	c.checkAdvertise(s, allow)
}

func (c Config) checkAdvertise(s *settings, allow []netip.Prefix) {
	const path = "internal.advertise"
	_, embedded := sqlitePath(c.Store)
	if host, _, _ := net.SplitHostPort(c.Internal.Listen); c.Internal.Advertise == "" && isWildcard(host) && !embedded {
		s.doubt(path, "missing: internal.listen %s is every address of this host, and peers need the one that leads here, "+
			"such as %s://10.0.0.7:8081", c.Internal.Listen, c.scheme())
		return
	}
	raw := c.advertised(c.Internal.Listen)
	if err := records.ValidateExecutorURL(raw); err != nil {
		s.doubt(path, "%q: %v", raw, err)
		return
	}
	u, err := url.Parse(raw)
	if err != nil {
		s.doubt(path, "%v", err)
		return
	}
	if u.Scheme != c.scheme() {
		s.doubt(path, "%s: internal.tls makes the internal listener speak %s", raw, c.scheme())
	}
	host := u.Hostname()
	switch addr, err := netip.ParseAddr(host); {
	case isWildcard(host):
		s.doubt(path, "%s is every address, and peers need the one that leads here", raw)
	case isLoopback(host) && !embedded && !namesLoopback(allow):
		s.doubt(path, "%s leads peers on other hosts to themselves: set internal.listen and internal.advertise to an address of this host; "+
			"if the whole fleet runs on this host, say internal.allow: [127.0.0.0/8]", raw)
	case err == nil && len(allow) > 0 && !contains(allow, addr):
		s.doubt(path, "%s is in no network of internal.allow, so no node could reach this one", raw)
	}
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func namesLoopback(allow []netip.Prefix) bool {
	for _, p := range allow {
		if p.Addr().Unmap().IsLoopback() {
			return true
		}
	}
	return false
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}
