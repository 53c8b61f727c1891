package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
)

// openTimeout is how long a store may take to open. A server that starts up
// together with its nodes is waited for by who starts them.
const openTimeout = 15 * time.Second

// noLog is for commands that tell what they have to tell themselves.
var noLog = slog.New(slog.DiscardHandler)

// sqlitePath is the file of a store such as sqlite:probate.db.
func sqlitePath(store string) (path string, ok bool) { return strings.CutPrefix(store, "sqlite:") }

// openStore opens the store that the configuration names, with its keys. The
// embedded one is made and migrated by this; PostgreSQL never is.
func openStore(ctx context.Context, c Config, log *slog.Logger, m *metrics) (records.Store, error) {
	return openSealed(ctx, c, newSealer(c, log, m), log, m)
}

// openSealed opens it with keys that can be exchanged.
func openSealed(ctx context.Context, c Config, keys *sealed.Sealer, log *slog.Logger, m *metrics) (records.Store, error) {
	s, err := openBare(ctx, c, log, m)
	if err != nil {
		return nil, err
	}
	return keys.Over(s), nil
}

// openBare opens the store as it is.
func openBare(ctx context.Context, c Config, log *slog.Logger, m *metrics) (records.Store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("%w: no answer within %s", records.ErrUnavailable, openTimeout))
	defer cancel()
	if path, ok := sqlitePath(c.Store); ok {
		config := sqlite.Config{Path: path, Cluster: c.Cluster, Grace: c.Takeover.Grace, Logger: log}
		if m != nil {
			config.Observe = m.committed
		}
		s, err := sqlite.Open(ctx, config)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			return s, nil
		}
		return timed{s, m}, nil
	}
	config := postgres.Config{
		DSN: c.Store, Cluster: c.Cluster, Pooler: c.Pooler, Grace: c.Takeover.Grace, Connections: c.Connections,
		StatementTimeout: c.Takeover.StatementTimeout, Logger: log,
	}
	if m != nil {
		config.Observe = m.observe
	}
	s, err := postgres.Open(ctx, config)
	if err != nil {
		return nil, err // not a nil *Store in an interface
	}
	return s, nil
}

// operatedStore opens the store for a look or an order. It makes no file.
func (e *env) operatedStore(ctx context.Context, c Config) (records.Store, error) {
	if path, ok := sqlitePath(c.Store); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, configError{fmt.Errorf("store %s: there is no such file; say which store with --store, DATABASE_URL or the configuration file", c.Store)}
		}
	}
	return openStore(ctx, c, noLog, nil)
}

// withStore runs f on the configured store.
func (e *env) withStore(ctx context.Context, c Config, f func(s records.Store) error) (err error) {
	s, err := e.operatedStore(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// storeName is the store without its secrets.
func (c Config) storeName() string {
	if _, ok := sqlitePath(c.Store); ok {
		return c.Store
	}
	u, err := url.Parse(c.Store)
	if err != nil || u.Host == "" && u.Path == "" || u.Scheme == "" {
		return "postgres"
	}
	return (&url.URL{Scheme: "postgres", Host: u.Host, Path: u.Path}).String()
}

// timed tells how long the calls of an embedded store took; PostgreSQL's
// statements report themselves.
type timed struct {
	records.Store
	metrics *metrics
}

func (t timed) took(statement string, since time.Time) {
	t.metrics.statements.WithLabelValues(statement).Observe(time.Since(since).Seconds())
}

// Heartbeat implements [records.Store], as all below.
func (t timed) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	defer t.took("heartbeat", time.Now())
	return t.Store.Heartbeat(ctx, id)
}

// Reserve is timed.
func (t timed) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	defer t.took("reserve", time.Now())
	return t.Store.Reserve(ctx, r)
}

// Load is timed.
func (t timed) Load(ctx context.Context, id records.ID) (records.Held, error) {
	defer t.took("load", time.Now())
	return t.Store.Load(ctx, id)
}

// Finalize is timed.
func (t timed) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	defer t.took("settle", time.Now())
	return t.Store.Finalize(ctx, id, f, o)
}

// Release is timed.
func (t timed) Release(ctx context.Context, id records.ID, f records.Fence) error {
	defer t.took("settle", time.Now())
	return t.Store.Release(ctx, id, f)
}

// MarkUnknown is timed.
func (t timed) MarkUnknown(ctx context.Context, id records.ID, f records.Fence, retention time.Duration) error {
	defer t.took("settle", time.Now())
	return t.Store.MarkUnknown(ctx, id, f, retention)
}

// TakeOver is timed.
func (t timed) TakeOver(ctx context.Context, o records.TakeOver) (records.Record, error) {
	defer t.took("take over", time.Now())
	return t.Store.TakeOver(ctx, o)
}

// Fence is timed.
func (t timed) Fence(ctx context.Context, s records.Suspicion) (records.Executor, error) {
	defer t.took("fence", time.Now())
	return t.Store.Fence(ctx, s)
}
