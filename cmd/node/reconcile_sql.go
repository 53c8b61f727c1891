package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/takeover"
)

// ReconcileSQL is which database is asked, and what.
type ReconcileSQL struct {
	DSN         string        `yaml:"dsn"`
	Query       string        `yaml:"query"`
	Timeout     time.Duration `yaml:"timeout"`
	Connections int           `yaml:"connections"`
}

func (r ReconcileSQL) config() postgres.QueryConfig {
	return postgres.QueryConfig{DSN: r.DSN, Text: r.Query, Timeout: r.Timeout, Connections: r.Connections}
}

// settle is how long not_applied is not believed unless the route says: as for
// a GET, until the upstream has had its time. What a transaction does is not
// there before it commits.
func (r Route) settle() time.Duration {
	if r.Reconcile.SQL == nil || r.Settle != 0 {
		return r.Settle
	}
	timeout := r.Timeout
	if timeout == 0 {
		timeout = api.DefaultTimeout
		if r.WorkTimeout > 0 {
			timeout = min(timeout, r.WorkTimeout)
		}
	}
	return timeout
}

// unopened stands in for a query where nothing is asked, such as a check.
var unopened = takeover.ReconcilerFunc(func(context.Context, records.Record, takeover.Request) (takeover.Finding, error) {
	return takeover.Finding{}, errors.New("the query is not open")
})

// queries are the databases that reconcile. One outlives the routes that named
// it, since what began on them may still ask; unused, it keeps no connection.
type queries struct {
	mu   sync.Mutex
	open map[ReconcileSQL]*postgres.Query
}

// serve opens the queries that routes need, and gives them to those.
func (q *queries) serve(ctx context.Context, n *node, c Config, routes []api.Route) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range c.Routes {
		if r.Reconcile.SQL == nil {
			continue
		}
		asked := *r.Reconcile.SQL
		if q.open[asked] == nil {
			config := asked.config()
			config.Logger = n.log
			opened, err := postgres.OpenQuery(ctx, config)
			if err != nil {
				return fmt.Errorf("routes[%d].reconcile.sql: %w", i, err)
			}
			if q.open == nil {
				q.open = map[ReconcileSQL]*postgres.Query{}
			}
			q.open[asked] = opened
		}
		routes[i].Reconciler = takeover.Asking(q.open[asked])
	}
	return nil
}

func (q *queries) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var faults []error
	for _, opened := range q.open {
		faults = append(faults, opened.Close())
	}
	q.open = nil
	return errors.Join(faults...)
}
