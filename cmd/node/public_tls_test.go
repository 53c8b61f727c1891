package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublicTLS is about control planes that show a certificate instead of a
// token.
func TestPublicTLS(t *testing.T) {
	t.Parallel()
	ours, theirs, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	ours.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "node")
	client := func(a *authority, usage x509.ExtKeyUsage) *http.Client {
		c := &tls.Config{RootCAs: x509.NewCertPool()}
		c.RootCAs.AddCert(ours.cert)
		if a != nil {
			a.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{usage}}, "client")
			pair, err := tls.LoadX509KeyPair(a.path("client.pem"), a.path("client-key.pem"))
			if err != nil {
				t.Fatal(err)
			}
			// Whatever the server says that it accepts: this one is shown.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		transport := &http.Transport{TLSClientConfig: c}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	file := filepath.Join(t.TempDir(), "node.yaml")
	// No address of this host but loopback is needed: that there is another way
	// in than tokens is seen by who shows nothing.
	text := fmt.Sprintf("store: %s\nlisten: 127.0.0.1:0\ninternal: {listen: 127.0.0.1:0}\ntls: {cert: %q, key: %q, client_ca: %q}\ndataflows: {enabled: true}\n",
		sqliteStore(t), ours.path("node.pem"), ours.path("node-key.pem"), theirs.path("ca.pem"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startEmbedded(t, "--config", file)
	public := "https://" + strings.TrimPrefix(n.public, "http://")
	ready(t, client(nil, 0), public)

	const status = "/dataflows/nothing/status"
	for name, c := range map[string]struct {
		client *http.Client
		want   int // 0: no connection
	}{
		"OneOfTheirAuthority": {client(theirs, x509.ExtKeyUsageClientAuth), http.StatusNotFound},
		"None":                {client(nil, 0), http.StatusUnauthorized},
		"OneOfAStranger":      {client(strangers, x509.ExtKeyUsageClientAuth), 0},
		"OneOfAServer":        {client(theirs, x509.ExtKeyUsageServerAuth), 0},
	} {
		t.Run("WithCertificate"+name, func(t *testing.T) {
			if got, text := get(t.Context(), c.client, public+status); got != c.want {
				t.Errorf("status %d, %s; want %d", got, text, c.want)
			}
		})
	}
	t.Run("InTheClearNothingIsAnswered", func(t *testing.T) {
		if got, text := get(t.Context(), http.DefaultClient, n.public+status); got != http.StatusBadRequest {
			t.Errorf("status %d, %s", got, text)
		}
	})
}

func TestPublicTLSConfiguration(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	open := "dataflows: {enabled: true}\nlisten: :0\n"
	for name, c := range map[string]struct{ text, says string }{
		"ACertificateWithoutItsKey": {fmt.Sprintf("tls: {cert: %q}\n", ca.path("ca.pem")), "want both cert and key"},
		"ClientsWithoutTLS":         {fmt.Sprintf("tls: {client_ca: %q}\n", ca.path("ca.pem")), "given without cert and key"},
		"NoCertificate":             {fmt.Sprintf("tls: {cert: %q, key: %q}\n", ca.path("no.pem"), ca.path("ca-key.pem")), "load certificate"},
		"NoAuthority":               {fmt.Sprintf("tls: {cert: %q, key: %q, client_ca: %q}\n", ca.path("ca.pem"), ca.path("ca-key.pem"), ca.path("ca-key.pem")), "holds no certificate"},
		"NeitherTokensNorTLS":       {open, "give tokens, tokens_file or tls.client_ca"},
		"ACertificateIsEnough":      {open + fmt.Sprintf("tls: {cert: %q, key: %q, client_ca: %q}\n", ca.path("ca.pem"), ca.path("ca-key.pem"), ca.path("ca.pem")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "node.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := invoke(t, nil, "serve", "--check", "--config", file)
			if (got.code == 0) != (c.says == "") || !strings.Contains(got.err, c.says) {
				t.Errorf("%+v, want %q", got, c.says)
			}
		})
	}
}
