package postgres

import (
	"errors"
	"log/slog"
	"time"

	"github.com/probate-dev/probate/records"
)

// PoolerTransaction says that the DSN leads to a pooler, such as PgBouncer, in
// transaction mode.
const PoolerTransaction = "transaction"

// Defaults of [Config].
const (
	DefaultStatementTimeout = time.Second
	DefaultDataTimeout      = 5 * time.Second
	DefaultConnections      = 8
)

// Config says which database to use and how. The zero value of a field is its
// default.
type Config struct {
	// DSN is a libpq URL or keyword string. It may name several hosts, of
	// which the first that takes writes is used. Required.
	DSN string
	// Cluster is the name of the fleet. A database that belongs to another is
	// refused; one that belongs to none yet is claimed. Required.
	Cluster string
	// Pooler is "" for a direct connection or "transaction". With a pooler
	// nothing is prepared and no session setting is sent, so the timeouts
	// below must be set for the role (ALTER ROLE … SET statement_timeout).
	Pooler string
	// Grace is how long an expired record is still remembered. The same on all
	// nodes. Default records.DefaultGrace.
	Grace time.Duration
	// StatementTimeout ends control statements: heartbeat, fence, register,
	// drain, attest. It also bounds every wait for a row's lock. It must be
	// well below the lease. Default one second.
	StatementTimeout time.Duration
	// DataTimeout ends the statements that carry records, which may be large.
	// A write whose reply was lost has landed or never will once this and
	// StatementTimeout have passed. Default five seconds.
	DataTimeout time.Duration
	// Connections for records, besides four for single purposes. More than
	// about eight make commits slower, not faster. Default eight.
	Connections int
	// Logger of what the caller cannot see; nil discards.
	Logger *slog.Logger
	// Observe, if set, is called after every statement or transaction. It must
	// be quick and must not call the store.
	Observe func(Observation)
}

// Observation is one statement or transaction, as it went.
type Observation struct {
	Name string        // what it did: reserve, load, settle, heartbeat, …
	Rows int           // how many callers it served
	Took time.Duration // waiting for a connection included
	Err  error
}

func (c Config) withDefaults() Config {
	if c.Grace == 0 {
		c.Grace = records.DefaultGrace
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = DefaultStatementTimeout
	}
	if c.DataTimeout == 0 {
		c.DataTimeout = max(DefaultDataTimeout, c.StatementTimeout)
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Observation) {}
	}
	return c
}

// validate joins every fault.
func (c Config) validate() error {
	var faults []error
	check := func(ok bool, field, reason string) {
		if !ok {
			faults = append(faults, &records.InvalidError{Field: field, Reason: reason})
		}
	}
	check(c.DSN != "", "dsn", "missing")
	check(c.Cluster != "" && len(c.Cluster) <= 255, "cluster", "want 1 to 255 bytes")
	check(records.ValidateReason(c.Cluster) == nil, "cluster", "want UTF-8 without NUL")
	check(c.Pooler == "" || c.Pooler == PoolerTransaction, "pooler", `want "" or "transaction"`)
	check(c.Grace >= 0, "grace", "negative")
	check(c.StatementTimeout >= 10*time.Millisecond, "statement timeout", "want at least 10ms")
	check(c.DataTimeout >= c.StatementTimeout, "data timeout", "shorter than the statement timeout")
	check(c.Connections >= 2 && c.Connections <= 1000, "connections", "want 2 to 1000")
	return errors.Join(faults...)
}
