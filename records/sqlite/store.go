package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// Config says which file to keep, and for whom. The zero value of a field is
// its default, if it has one.
type Config struct {
	// Path of the file. Its folder must exist. Beside it SQLite keeps -wal and
	// -shm, and the processes that share it a file -turn; they belong together.
	Path string
	// Cluster is the id of the fleet. A fresh file takes it on; one of another
	// cluster is refused with records.ErrWrongCluster.
	Cluster string
	// Grace is how long an expired record is still remembered. Default
	// records.DefaultGrace.
	Grace time.Duration
	// Patience is how long a write waits for other processes' writes before it
	// is records.ErrUnavailable. Default 5s. A caller in a hurry, such as a
	// heartbeat, bounds its own waiting by its context.
	Patience time.Duration
	// BootID names this run of this host's kernel. Default: as the system says.
	BootID string
	// Clock is the one clock of everything in the file, so all processes must
	// have the same. Default time.Now.
	Clock func() time.Time
	// Logger hears of migrations. Default: nobody.
	Logger *slog.Logger
	// Observe, if set, is called with the number of decisions that each
	// transaction took. It must be quick and must not call the store.
	Observe func(decisions int)

	// rewrite changes a statement's text before it is prepared, so that tests
	// can take a guard out and see that they notice.
	rewrite func(text string) string
	// maxBatch is how many jobs may share a transaction; 1 shows what sharing
	// is worth.
	maxBatch int
}

func (c Config) withDefaults() (Config, error) {
	c.Grace = cmp.Or(c.Grace, records.DefaultGrace)
	c.Patience = cmp.Or(c.Patience, 5*time.Second)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.rewrite == nil {
		c.rewrite = func(text string) string { return text }
	}
	switch {
	case c.Path == "":
		return c, &records.InvalidError{Field: "path", Reason: "missing"}
	case records.ValidateCluster(c.Cluster) != nil:
		return c, records.ValidateCluster(c.Cluster)
	case c.Grace < 0 || c.Patience < 0:
		return c, &records.InvalidError{Field: "grace, patience", Reason: "negative"}
	}
	if c.BootID == "" {
		id, err := hostBootID()
		if err != nil {
			return c, fmt.Errorf("read the host's boot id: %w", err)
		}
		c.BootID = id
	}
	return c, nil
}

// Store is a [records.Store] over one file. Use Open to make one.
type Store struct {
	config Config

	turn    *turn
	writer  *writer
	jobs    *groupcommit.Committer[job, any]
	readers *sqlx.DB
	reads   map[string]*sqlx.Stmt

	listWindow int // rows that a page of a listing examines at most

	mu      sync.Mutex
	closed  bool
	reading sync.WaitGroup
}

var _ records.Store = (*Store)(nil)

// Fleet implements [records.Store].
func (s *Store) Fleet(ctx context.Context) (records.Fleet, error) {
	row, err := readOne[fleetRow](ctx, s, "read fleet", selectFleet)
	if err != nil {
		return records.Fleet{}, err
	}
	return records.Fleet(row), nil
}

// Rekey implements [records.Store].
func (s *Store) Rekey(ctx context.Context, from, to, operator string) error {
	if err := errors.Join(records.ValidateCluster(to), records.ValidateReason(operator)); err != nil {
		return fmt.Errorf("rekey fleet: %w", err)
	}
	return s.write(ctx, "rekey fleet", func(t *tx) error {
		if t.exec(rekeyFleet, to, from) == 0 {
			return records.ErrWrongCluster
		}
		t.note(records.Event{At: instant(t.now()), Kind: records.EventRekeyed, Actor: operator, Before: from, After: to})
		return nil
	})
}

// Close implements [records.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		return nil
	}
	s.jobs.Close()
	s.reading.Wait()
	return s.shut()
}

// read counts a call of the readers in, so that Close waits for it.
func (s *Store) read() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.reading.Add(1)
	return nil
}

// readOne reads one row. ErrNotFound: there is none.
func readOne[T any](ctx context.Context, s *Store, op, text string, args ...any) (row T, err error) {
	if err := s.read(); err != nil {
		return row, fmt.Errorf("%s: %w", op, err)
	}
	defer s.reading.Done()
	return row, translate(ctx, op, s.reads[text].GetContext(ctx, &row, args...))
}

// readAll reads all rows.
func readAll[T any](ctx context.Context, s *Store, op, text string, args ...any) (rows []T, err error) {
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	defer s.reading.Done()
	return rows, translate(ctx, op, s.reads[text].SelectContext(ctx, &rows, args...))
}
