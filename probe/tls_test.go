package probe_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.cert = issue(t, template, nil)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, cert := issue(t, template, a)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func issue(t *testing.T, template *x509.Certificate, by *authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func TestTLS(t *testing.T) {
	t.Parallel()
	fleet, other := newAuthority(t), newAuthority(t)
	ours := fleet.certificate(t)
	server := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ours},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: fleet.pool,
	}
	member := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: fleet.pool, Certificates: []tls.Certificate{ours}}
	withTLS := func(cfg *tls.Config) func(*probe.ClientConfig) {
		return func(c *probe.ClientConfig) { c.TLS = cfg }
	}
	secured := func(t *testing.T) *node {
		t.Helper()
		n := unregistered(t, 1, nil)
		s := probe.Server(n.handler, server)
		s.ErrorLog = quiet()
		n.executor.URL = "https://" + n.serve(t, s)
		return n
	}

	t.Run("MutualIsSigned", func(t *testing.T) {
		t.Parallel()
		n := secured(t)
		end := n.running.begin(recordID(1))
		c := newClient(t, withTLS(member))
		if o := c.Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Running {
			t.Fatalf("probe: %+v", o)
		}
		first, second := watching(t, c, n, recordID(1)), watching(t, c, n, recordID(1))
		end()
		if o := receive(t, first); o.Verdict != probe.NotRunning {
			t.Errorf("watch: %+v", o)
		}
		if o := receive(t, second); o.Verdict != probe.NotRunning {
			t.Errorf("watch: %+v", o)
		}
		if n := n.accepted.Load(); n != 2 {
			t.Errorf("%d connections, want one for the probe and one for the watches", n)
		}
	})

	for name, cfg := range map[string]*tls.Config{
		"AServerOfAnotherAuthorityIsUnknown": {MinVersion: tls.VersionTLS13, RootCAs: other.pool, Certificates: []tls.Certificate{ours}},
		"WithoutACertificateIsUnknown":       {MinVersion: tls.VersionTLS13, RootCAs: fleet.pool},
		"WithAForeignCertificateIsUnknown":   {MinVersion: tls.VersionTLS13, RootCAs: fleet.pool, Certificates: []tls.Certificate{other.certificate(t)}},
		"SystemRootsAreUnknown":              nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := secured(t)
			c := newClient(t, withTLS(cfg))
			if o := c.Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Unknown {
				t.Errorf("probe: %+v", o)
			}
			if o := c.Watch(t.Context(), n.executor, recordID(1), 1, time.Second); o.Verdict != probe.Unknown {
				t.Errorf("watch: %+v", o)
			}
		})
	}

	t.Run("APlainServerIsUnknown", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, 1, nil)
		n.executor.URL = strings.Replace(n.executor.URL, "http:", "https:", 1)
		if o := newClient(t, withTLS(member)).Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Unknown {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("APlainQuestionToATLSServerIsUnknown", func(t *testing.T) {
		t.Parallel()
		n := secured(t)
		n.executor.URL = strings.Replace(n.executor.URL, "https:", "http:", 1)
		if o := newClient(t, withTLS(member)).Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Unknown {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("RefusedIsDown", func(t *testing.T) {
		t.Parallel()
		n := secured(t)
		n.executor.URL = "https://" + refusing(t)
		if o := newClient(t, withTLS(member)).Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Down {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("AResetAfterTheHandshakeIsUnknown", func(t *testing.T) {
		t.Parallel()
		n := secured(t)
		n.executor.URL = strings.Replace(answering(t, func(c net.Conn) {
			secure := tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ours}})
			readQuestion(secure)
			closeWithReset(c)
		}), "http:", "https:", 1)
		if o := newClient(t, withTLS(member)).Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Unknown || !errors.Is(o.Err, syscall.ECONNRESET) {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("AcceptedAndNeverShakenIsSilent", func(t *testing.T) {
		t.Parallel()
		n := secured(t)
		n.executor.URL = strings.Replace(answering(t, func(net.Conn) {}), "http:", "https:", 1)
		c := newClient(t, func(c *probe.ClientConfig) {
			impatient(c)
			c.TLS = member
		})
		if o := c.Probe(t.Context(), n.executor, recordID(1), 1); o.Verdict != probe.Silent {
			t.Errorf("got %+v", o)
		}
	})
}
