package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// PublicTLS secures the public listener.
type PublicTLS struct {
	Cert     string `yaml:"cert" help:"Certificate file of the public listener; empty: no TLS."`
	Key      string `yaml:"key" help:"Key file of the public listener."`
	ClientCA string `yaml:"client_ca" help:"Certificates by which those of control planes are signed; they let in at /dataflows instead of a token."`
}

// load reads the files. Nil: there are none.
func (t PublicTLS) load() (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil //nolint:nilnil // no TLS is a configuration, too
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	// Who proxies requests as they came speaks one version of HTTP.
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if t.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("load client_ca: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load client_ca: %s holds no certificate", t.ClientCA)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven // clients of the gateway have none
	return c, nil
}

// checkPublicTLS reports what cannot work.
func (c Config) checkPublicTLS(s *settings) {
	t := c.TLS
	switch {
	case (t.Cert == "") != (t.Key == ""):
		s.doubt("tls", "want both cert and key, or neither")
		return
	case t.ClientCA != "" && t.Cert == "":
		s.doubt("tls.client_ca", "given without cert and key")
		return
	}
	if _, err := t.load(); err != nil {
		s.doubt("tls", "%v", err)
	}
}
