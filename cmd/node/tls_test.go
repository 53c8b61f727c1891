package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for tests.
type authority struct {
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	folder string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{folder: t.TempDir()}
	a.key, a.cert = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, "ca")
	return a
}

// sign makes a certificate and writes name.pem and name-key.pem.
func (a *authority) sign(t *testing.T, c *x509.Certificate, name string) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem":     {Type: "CERTIFICATE", Bytes: der},
		name + "-key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, made
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// flags are the settings of a node with a certificate of its own.
func (a *authority) flags(t *testing.T, name string) []string {
	t.Helper()
	a.sign(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, name)
	return []string{
		"--internal.tls.cert", a.path(name + ".pem"), "--internal.tls.key", a.path(name + "-key.pem"), "--internal.tls.ca", a.path("ca.pem"),
		"--internal.token", "secret of the fleet",
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s, client := newService(t), browser(t)
	store := sqliteStore(t)
	start := func(name string) *embedded {
		return startEmbedded(t, append([]string{"--config", configure(t, store, s.URL)}, ca.flags(t, name)...)...)
	}
	a, b := start("a"), start("b")
	ready(t, client, a.public)
	ready(t, client, b.public)
	internal := "https://" + strings.TrimPrefix(a.internal, "http://")

	// Each has reached the other under both certificates and the token.
	await(t, "both are attested", func() bool {
		attested := 0
		for _, x := range okJSON(t, "executors", "list", "--store", store)["executors"].([]any) {
			if x.(map[string]any)["attested_at"] != nil {
				attested++
			}
		}
		return attested == 2
	})
	asOperator := append([]string{"probe", internal, "--store", store}, ca.flags(t, "operator")...)
	if v := okJSON(t, asOperator...); v["serving"] != true {
		t.Errorf("with a certificate: %v", v)
	}
	ofRecord := append([]string{"probe", internal, strings.Repeat("0", 64), "--verify", "--store", store}, ca.flags(t, "operator")...)
	if v := okJSON(t, ofRecord...); v["signature"] != "verified" {
		t.Errorf("a question: %v", v)
	}
	withoutToken := invoke(t, nil, append(slices.Clip(ofRecord), "--internal.token", "guessed")...)
	if withoutToken.code != exitFailed || !strings.Contains(withoutToken.err, "status 401") {
		t.Errorf("with another token: %+v", withoutToken)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
	transport.TLSClientConfig.RootCAs.AddCert(ca.cert)
	defer transport.CloseIdleConnections()
	if status, text := get(t.Context(), &http.Client{Transport: transport}, internal+"/metrics"); status != 0 {
		t.Errorf("without a certificate: %d %s", status, text)
	}
}
