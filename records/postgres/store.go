package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// Store keeps records and executors in PostgreSQL.
type Store struct {
	config  Config
	beats   *pool // heartbeats, and nothing they could queue behind
	control *pool // what decides about executors
	data    *pool // records
	lane    lane  // records, for a caller that is alone

	reserving *groupcommit.Committer[records.Reservation, records.Reserved]
	settling  *groupcommit.Committer[settlement, struct{}]
	loading   *groupcommit.Committer[records.ID, records.Held]

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup

	// mutate replaces a statement's text. Only a test sets it, to show that a
	// guard it takes out is what kept a race from being lost.
	mutate func(text string) string
}

var _ records.Store = (*Store)(nil)

// Open opens the store of a cluster. The database must be migrated:
// records.ErrSchemaTooOld, records.ErrBinaryTooOld. If it belongs to another
// cluster the error is records.ErrWrongCluster; if to none yet, this claims it.
func Open(ctx context.Context, c Config) (*Store, error) {
	return open(ctx, c, func(text string) string { return text })
}

func open(ctx context.Context, c Config, mutate func(string) string) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{config: c, mutate: mutate}
	if err := s.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.closePools())
	}
	s.reserving = groupcommit.New(groupcommit.Config[records.Reservation]{
		Flushers: flushers, Spread: spread, MaxItems: batchRows, Weight: weightOfReservation,
	}, together(s, s.reserveBatch)).Alone(alone(s, s.reserveBatch))
	s.settling = groupcommit.New(groupcommit.Config[settlement]{
		Flushers: flushers, Spread: spread, MaxItems: batchRows, Weight: settlement.weight,
	}, together(s, s.settleBatch)).Alone(alone(s, s.settleBatch))
	s.loading = groupcommit.New(groupcommit.Config[records.ID]{
		Flushers: flushers, Spread: spread, MaxItems: batchRows,
	}, together(s, s.loadBatch)).Alone(alone(s, s.loadBatch))
	if err := do(ctx, s, func(ctx context.Context) error { return s.admit(ctx) }); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.Close())
	}
	return s, nil
}

// Of each kind of batch two commit at once, the second only beside a small one:
// with few requests in flight two commits share the server's fsync, with many
// one large batch costs less than two halves.
const (
	flushers  = 2
	spread    = 3
	batchRows = 256
)

// commit writes a batch over a pool.
type commit[In, Out any] func(ctx context.Context, p *pool, batch []In) []groupcommit.Result[Out]

// together commits a batch for all its callers, so no one's context ends it.
func together[In, Out any](s *Store, f commit[In, Out]) groupcommit.Commit[In, Out] {
	return func(batch []In) []groupcommit.Result[Out] { return f(context.Background(), s.data, batch) }
}

// alone commits for one caller, in its own goroutine, so its context must end
// it. The driver's way to that costs a goroutine a statement; the lane's costs
// nothing until the context ends, and then its connection.
func alone[In, Out any](s *Store, f commit[In, Out]) func(context.Context, In) groupcommit.Result[Out] {
	return func(ctx context.Context, in In) groupcommit.Result[Out] {
		p, until := s.data, ctx
		if s.lane.busy.TryLock() {
			defer s.lane.busy.Unlock()
			defer context.AfterFunc(ctx, s.lane.cut)()
			p, until = s.lane.pool, context.WithoutCancel(ctx)
		}
		r := f(until, p, []In{in})[0]
		if r.Err != nil && ctx.Err() != nil {
			r.Err = context.Cause(ctx)
		}
		return r
	}
}

func (s *Store) connect() error {
	dsn, _, err := parseDSN(s.config.DSN)
	if err != nil {
		return err
	}
	quick := limits{statement: s.config.StatementTimeout, lock: s.config.StatementTimeout, idle: s.config.StatementTimeout}
	quick.connections = 1
	if s.beats, err = openPool(s, dsn, quick, nil); err != nil {
		return err
	}
	quick.connections = 2
	if s.control, err = openPool(s, dsn, quick, nil); err != nil {
		return err
	}
	large := limits{statement: s.config.DataTimeout, lock: s.config.StatementTimeout, idle: s.config.StatementTimeout}
	large.connections = 1
	if s.lane.pool, err = openPool(s, dsn, large, s.lane.dialled); err != nil {
		return err
	}
	large.connections = s.config.Connections
	s.data, err = openPool(s, dsn, large, nil)
	return err
}

// admit checks that this binary, this store and this cluster belong together.
func (s *Store) admit(ctx context.Context) error {
	return s.control.attempt(ctx, "open", func(ctx context.Context) error {
		var session []struct {
			Isolation string `db:"isolation"`
			Durable   string `db:"durable"`
		}
		if err := s.control.plans(ctx, &session, checkSession); err != nil {
			return err
		}
		if session[0].Isolation != "read committed" {
			return &records.InvalidError{Field: "default_transaction_isolation", Reason: "want read committed for the store's role"}
		}
		if session[0].Durable == "off" {
			s.config.Logger.WarnContext(ctx, "the server acknowledges commits that a crash can lose",
				"synchronous_commit", session[0].Durable)
		}
		fleet, err := readFleet(ctx, s.control.db)
		if err != nil && !errors.Is(err, errNoSchema) {
			return err
		}
		if err := admit(fleet, Schema, OldestSchema); err != nil {
			return err
		}
		if _, err := s.control.changes(ctx, claimFleet, s.config.Cluster); err != nil {
			return err
		}
		if fleet, err = readFleet(ctx, s.control.db); err != nil {
			return err
		}
		if fleet.Cluster != s.config.Cluster {
			return fmt.Errorf("%w: the store belongs to %q, this node to %q", records.ErrWrongCluster, fleet.Cluster, s.config.Cluster)
		}
		return nil
	})
}

// Fleet reads the cluster row.
func (s *Store) Fleet(ctx context.Context) (records.Fleet, error) {
	return call(ctx, s, func(ctx context.Context) (f records.Fleet, err error) {
		err = s.control.attempt(ctx, "fleet", func(ctx context.Context) error {
			f, err = readFleet(ctx, s.control.db)
			return err
		})
		return f, err
	})
}

// Rekey gives the store another cluster id, if it now has from.
func (s *Store) Rekey(ctx context.Context, from, to, operator string) error {
	if err := errors.Join(records.ValidateCluster(to), records.ValidateReason(operator)); err != nil {
		return err
	}
	if records.ValidateReason(from) != nil {
		return records.ErrWrongCluster // no store has such a name
	}
	return do(ctx, s, func(ctx context.Context) error {
		return s.control.attempt(ctx, "rekey", func(ctx context.Context) error {
			n, err := s.control.changes(ctx, rekeyFleet, from, to, operator)
			if err == nil && n == 0 {
				return records.ErrWrongCluster
			}
			return err
		})
	})
}

// Close refuses new calls, waits for those that run and for what is queued, and
// closes the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.reserving.Close()
	s.settling.Close()
	s.loading.Close()
	s.calls.Wait()
	return s.closePools()
}

func (s *Store) closePools() error {
	var errs []error
	for _, p := range []*pool{s.beats, s.control, s.lane.pool, s.data} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

// enter counts a call that Close must wait for, unless it is too late.
func (s *Store) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}

// rewrite is the text that is sent for a statement.
func (s *Store) rewrite(text string) string { return s.mutate(text) }

// queued translates the error of a group commit that was closed.
func queued(err error) error {
	if errors.Is(err, groupcommit.ErrClosed) {
		return fmt.Errorf("%w: %w", records.ErrUnavailable, errClosed)
	}
	return err
}
