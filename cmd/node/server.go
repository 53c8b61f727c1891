package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/probate-dev/probate/records/postgres"
)

// clockTolerance is how far this host's clock may be from the database's.
// Nothing of the protocol compares the two; logs and people do.
const clockTolerance = 2 * time.Second

// server looks at what a PostgreSQL server does for this role, past the store:
// its clock, and the limits that a pooler keeps the store from setting.
func (x *examination) server(ctx context.Context) {
	config, err := pq.NewConfig(x.config.Store)
	if err != nil {
		return // the store said so
	}
	for name := range config.Runtime {
		if len(name) > 2 && name[:2] == "x-" {
			delete(config.Runtime, name) // golang-migrate's
		}
	}
	config.BinaryParameters = true // nothing is prepared: a pooler may be in between
	made, err := pq.NewConnectorConfig(config)
	if err != nil {
		return
	}
	db := sqlx.NewDb(sql.OpenDB(made), "postgres")
	defer func() { _ = db.Close() }() // it was only looked at
	x.clock(ctx, db)
	x.durability(ctx, db)
	x.limits(ctx, db)
}

func (x *examination) clock(ctx context.Context, db *sqlx.DB) {
	var theirs time.Time
	sent := time.Now()
	if err := db.GetContext(ctx, &theirs, `SELECT clock_timestamp()`); err != nil {
		x.add("clock", sick, "", "%v", err)
		return
	}
	off := theirs.Sub(sent.Add(time.Since(sent) / 2))
	if off.Abs() > clockTolerance {
		x.add("clock", doubtful, "synchronise the clocks, or times in logs will mislead", "the database's is %s from this host's", age(off))
		return
	}
	x.add("clock", healthy, "", "the database's is within %s of this host's", age(max(off.Abs(), time.Millisecond)))
}

func (x *examination) durability(ctx context.Context, db *sqlx.DB) {
	var commit, fsync string
	err := db.QueryRowxContext(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')`).Scan(&commit, &fsync)
	switch {
	case err != nil:
		x.add("durability", sick, "", "%v", err)
	case commit == "off" || fsync == "off":
		x.add("durability", sick, "ALTER ROLE … SET synchronous_commit = on, and fsync = on in the server's configuration",
			"synchronous_commit %s, fsync %s: an answer that was given can be forgotten", commit, fsync)
	default:
		x.add("durability", healthy, "", "synchronous_commit %s, fsync %s", commit, fsync)
	}
}

// limits looks at the timeouts of the role. With a direct connection the store
// sets its own.
func (x *examination) limits(ctx context.Context, db *sqlx.DB) {
	if x.config.Pooler != postgres.PoolerTransaction {
		x.add("timeouts", healthy, "", "set by the store itself on direct connections")
		return
	}
	most := x.config.Takeover.LeaseTTL - x.config.Takeover.Margin
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		var ms int64
		// pg_settings has them in milliseconds, whatever way they were written.
		if err := db.GetContext(ctx, &ms, `SELECT setting::bigint FROM pg_settings WHERE name = $1`, name); err != nil {
			x.add("timeouts", sick, "", "%s: %v", name, err)
			continue
		}
		is := time.Duration(ms) * time.Millisecond
		set := fmt.Sprintf("ALTER ROLE … SET %s = '%s'", name, postgres.DefaultDataTimeout)
		switch {
		case ms == 0:
			x.add("timeouts", sick, set, "%s is off: behind a pooler the store cannot set it", name)
		case is >= most:
			x.add("timeouts", sick, set, "%s is %s, not below lease_ttl − margin = %s", name, is, most)
		default:
			x.add("timeouts", healthy, "", "%s is %s", name, is)
		}
	}
}
