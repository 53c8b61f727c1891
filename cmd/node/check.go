package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records/postgres"
)

// check reports everything about c that cannot work, at the place where it was
// written.
func (c Config) check(s *settings) {
	c.checkStore(s)
	c.checkAddresses(s)
	c.checkTLS(s)
	c.checkPublicTLS(s)
	c.checkOperators(s)
	c.checkLog(s)
	c.checkTimes(s)
	c.checkRoutes(s)
	c.checkDataflows(s)
}

func (c Config) checkStore(s *settings) {
	if path, ok := sqlitePath(c.Store); ok {
		if path == "" {
			s.doubt("store", "want sqlite: and the name of a file")
		}
	} else if _, err := pq.NewConfig(c.Store); err != nil || !strings.Contains(c.Store, "=") && !strings.Contains(c.Store, "://") {
		// The driver's message can quote the password.
		s.doubt("store", "want postgres://user@host/database, a libpq keyword string, or sqlite:FILE")
	}
	if c.Pooler != "" && c.Pooler != postgres.PoolerTransaction {
		s.doubt("pooler", "%q is not %q", c.Pooler, postgres.PoolerTransaction)
	}
	if c.Connections < 2 || c.Connections > 1000 {
		s.doubt("connections", "%d: want 2 to 1000", c.Connections)
	}
	if c.Cluster == "" || len(c.Cluster) > 255 {
		s.doubt("cluster", "want 1 to 255 bytes")
	}
	if len(c.Slot) > 255 {
		s.doubt("slot", "want at most 255 bytes")
	}
	if c.MemoryBytes == 0 || c.MemoryBytes < -1 {
		s.doubt("memory_bytes", "want a number of bytes, or -1 for none")
	}
}

func (c Config) checkTLS(s *settings) {
	t := c.Internal.TLS
	switch {
	case (t.Cert == "") != (t.Key == ""):
		s.doubt("internal.tls", "want both cert and key, or neither")
	case t.CA != "" && t.Cert == "":
		s.doubt("internal.tls.ca", "given without cert and key")
	}
	if s.faulty["internal.tls"] || s.faulty["internal.tls.ca"] {
		return
	}
	if _, err := t.load(); err != nil {
		s.doubt("internal.tls", "%v", err)
	}
}

// load reads the files. Nil: there are none.
func (t TLS) load() (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil //nolint:nilnil // no TLS is a configuration, too
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if t.CA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("load ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load ca: %s holds no certificate", t.CA)
	}
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return c, nil
}

func (c Config) checkLog(s *settings) {
	if !slices.Contains([]string{auditUnusual, auditAll, auditOff}, c.Audit.Level) {
		s.doubt("audit.level", "%q is none of %s, %s, %s", c.Audit.Level, auditUnusual, auditAll, auditOff)
	}
	if _, err := c.Log.level(); err != nil {
		s.doubt("log.level", "%q is none of debug, info, warn, error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		s.doubt("log.format", "%q is neither text nor json", c.Log.Format)
	}
}

func (l Log) level() (level slog.Level, err error) {
	err = level.UnmarshalText([]byte(l.Level))
	return level, err
}

// checkTimes also refuses zero where zero would silently mean the default.
func (c Config) checkTimes(s *settings) {
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		if top, _, _ := strings.Cut(l.path, "."); top != "takeover" && top != "wait" && top != "audit" {
			continue
		}
		switch v := l.value.Interface().(type) {
		case time.Duration:
			if v < 0 || v == 0 && l.path != "takeover.drain_delay" {
				s.doubt(l.path, "%s: want more than that", v)
			}
		case int:
			if v <= 0 {
				s.doubt(l.path, "%d: want 1 or more", v)
			}
		}
	}
	t := c.takeover()
	t.Slot, t.URL = "checked elsewhere", "http://checked.elsewhere"
	for _, err := range split(t.Validate()) {
		s.fault("takeover", "%v", err)
	}
}

func (c Config) checkRoutes(s *settings) {
	for i, r := range c.Routes {
		if r.Reconcile.SQL != nil {
			for _, err := range split(r.Reconcile.SQL.config().Validate()) {
				s.doubt(fmt.Sprintf("routes[%d].reconcile.sql", i), "%v", err)
			}
		}
	}
	for _, err := range split(c.gateway().Validate()) {
		fe, ok := errors.AsType[*api.FieldError](err)
		if !ok {
			s.fault("routes", "%v", err)
			continue
		}
		if route, is := strings.CutSuffix(fe.Path, ".on_server_error"); is && s.faulty[route+".profile"] {
			continue // its default is the profile's
		}
		s.doubt(fe.Path, "%s", fe.Reason)
	}
}

// split takes joined errors apart.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}
