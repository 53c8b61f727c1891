package probe

import (
	"errors"
	"net/netip"
	"testing"
)

func TestAllowList(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		allow []string
		addr  string
		want  bool
	}{
		{nil, "127.0.0.1", true},
		{nil, "::1", true},
		{nil, "10.0.0.7", true},
		{nil, "fd12::7", true},
		{nil, "192.0.2.1", true},
		{nil, "2001:db8::1", true},
		{nil, "0.0.0.0", false},
		{nil, "0.1.2.3", false},
		{nil, "::", false},
		{nil, "169.254.169.254", false},
		{nil, "169.254.1.1", false},
		{nil, "::ffff:169.254.169.254", false},
		{nil, "64:ff9b::a9fe:a9fe", false}, // NAT64 of 169.254.169.254
		{nil, "64:ff9b::a00:7", true},      // NAT64 of 10.0.0.7
		{nil, "::a9fe:a9fe", false},
		{nil, "fe80::1", false},
		{nil, "fe80::1%eth0", false},
		{nil, "fd00:ec2::254", false},
		{nil, "100.100.100.200", false},
		{nil, "100.100.100.201", true},
		{nil, "168.63.129.16", false},
		{nil, "224.0.0.1", false},
		{nil, "ff02::1", false},
		{nil, "255.255.255.255", false},
		{nil, "240.0.0.1", false},
		{[]string{"10.0.0.0/8"}, "10.0.0.7", true},
		{[]string{"10.0.0.0/8"}, "::ffff:10.0.0.7", true},
		{[]string{"10.0.0.0/8"}, "11.0.0.7", false},
		{[]string{"10.0.0.0/8"}, "127.0.0.1", false},
		{[]string{"0.0.0.0/0", "::/0"}, "192.0.2.1", true},
		{[]string{"0.0.0.0/0", "::/0"}, "169.254.169.254", false}, // too wide to mean it
		{[]string{"0.0.0.0/0", "::/0"}, "64:ff9b::a9fe:a9fe", false},
		{[]string{"0.0.0.0/0", "::/0"}, "fe80::1", false},
		{[]string{"0.0.0.0/0", "::/0"}, "224.0.0.1", false},
		{[]string{"169.254.0.0/16"}, "169.254.1.1", true},
		{[]string{"169.254.0.0/16"}, "169.254.169.254", false},
		{[]string{"169.254.169.254/32"}, "169.254.169.254", true},
		{[]string{"fe80::/10"}, "fe80::1%eth0", true},
		{[]string{"224.0.0.0/4"}, "224.0.0.1", false},
	} {
		var l allowList
		for _, p := range row.allow {
			l = append(l, netip.MustParsePrefix(p))
		}
		if got := l.permits(netip.MustParseAddr(row.addr)); got != row.want {
			t.Errorf("allow %v: %s: got %v", row.allow, row.addr, got)
		}
	}
	if allowList(nil).permits(netip.Addr{}) {
		t.Error("no address is permitted")
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://node-1:8081":      "node-1:8081",
		"http://10.0.0.7":         "10.0.0.7:80",
		"https://10.0.0.7":        "10.0.0.7:443",
		"http://[::1]:8081":       "[::1]:8081",
		"https://[2001:db8::1]":   "[2001:db8::1]:443",
		"http://169.254.169.254":  "",
		"http://[fe80::1%25eth0]": "",
		"http://user@node-1":      "",
		"http://node-1/path":      "",
		"http://node-1/":          "",
		"http://node-1?q":         "",
		"http://node-1#f":         "",
		"ftp://node-1":            "",
		"node-1:8081":             "",
		"http://":                 "",
		"http://0.0.0.0:8081":     "",
	} {
		_, got, err := allowList(nil).target(url)
		if got != want || (want == "") != errors.Is(err, ErrForbidden) {
			t.Errorf("%s: got %q, %v", url, got, err)
		}
	}
}
