package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

var (
	errClosed  = errors.New("store is closed")
	errSilence = errors.New("no answer in time")
)

// limits bound what happens on one pool's connections.
type limits struct {
	connections int
	statement   time.Duration // the server ends a statement
	lock        time.Duration // the server ends a wait for a lock
	idle        time.Duration // the server ends a transaction that waits for us
}

// silence is how long a connection may say nothing: a little longer than the
// server takes to end a statement and say so.
func (l limits) silence() time.Duration {
	return l.statement + max(l.statement/2, 500*time.Millisecond)
}

// settings are the session settings that keep the limits and the isolation
// that the statements were written for.
func (l limits) settings() map[string]string {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
	return map[string]string{
		"statement_timeout":                   ms(l.statement),
		"lock_timeout":                        ms(l.lock),
		"idle_in_transaction_session_timeout": ms(l.idle),
		"default_transaction_isolation":       "read committed",
	}
}

// pool is a few connections for one kind of statement.
type pool struct {
	db       *sqlx.DB
	limits   limits
	prepared bool // statements are prepared; else no session state is left
	store    *Store

	mu         sync.Mutex
	statements map[string]*sqlx.Stmt
}

func openPool(s *Store, c pq.Config, l limits, dialled func(net.Conn)) (*pool, error) {
	direct := s.config.Pooler == ""
	c = c.Clone()
	// Arguments that are bytes travel as bytes, and a statement that is not
	// prepared takes one round trip and leaves nothing behind.
	c.BinaryParameters = true
	if direct {
		maps.Copy(c.Runtime, l.settings())
	}
	made, err := connector(c, l.silence(), dialled)
	if err != nil {
		return nil, err
	}
	db := sqlx.NewDb(sql.OpenDB(made), "postgres")
	db.SetMaxOpenConns(l.connections)
	db.SetMaxIdleConns(l.connections)
	db.SetConnMaxLifetime(time.Hour) // so that a list of hosts is looked at again
	return &pool{db: db, limits: l, prepared: direct, store: s, statements: map[string]*sqlx.Stmt{}}, nil
}

// lane is a pool of one connection, for one caller at a time.
type lane struct {
	*pool
	busy sync.Mutex
	conn atomic.Pointer[net.Conn]
}

func (l *lane) dialled(c net.Conn) { l.conn.Store(&c) }

// cut breaks the connection, which ends whatever waits for its answer. The
// pool makes another when it is next used.
func (l *lane) cut() {
	if c := l.conn.Load(); c != nil {
		_ = (*c).Close()
	}
}

// prepare returns the statement for a text, prepared once. Unlike a connection
// it lives as long as the pool.
func (p *pool) prepare(ctx context.Context, text string) (*sqlx.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st, ok := p.statements[text]; ok {
		return st, nil
	}
	st, err := p.db.PreparexContext(ctx, p.store.rewrite(text)) //nolint:sqlclosecheck // the pool closes it
	if err == nil {
		p.statements[text] = st
	}
	return st, err
}

// selects runs a statement and reads all its rows into dest, a pointer to a
// slice of row structs.
func (p *pool) selects(ctx context.Context, dest any, text string, args ...any) error {
	if !p.prepared {
		return p.plans(ctx, dest, text, args...)
	}
	st, err := p.prepare(ctx, text) //nolint:sqlclosecheck // the pool closes it
	if err != nil {
		return err
	}
	return st.SelectContext(ctx, dest, args...)
}

// reads is selects for the hot path: scan reads a row itself, for which sqlx
// would look up every column by its name, each time.
func (p *pool) reads(ctx context.Context, scan func(rows *sqlx.Rows) error, text string, args ...any) (err error) {
	var rows *sqlx.Rows
	if p.prepared {
		var st *sqlx.Stmt
		if st, err = p.prepare(ctx, text); err == nil { //nolint:sqlclosecheck // the pool closes it
			rows, err = st.QueryxContext(ctx, args...)
		}
	} else {
		rows, err = p.db.QueryxContext(ctx, p.store.rewrite(text), args...)
	}
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// plans is selects for a statement that must be planned for its arguments and
// for the table as it is now.
func (p *pool) plans(ctx context.Context, dest any, text string, args ...any) error {
	return p.db.SelectContext(ctx, dest, p.store.rewrite(text), args...)
}

// executes runs a statement and returns how many rows it wrote.
func (p *pool) executes(ctx context.Context, text string, args ...any) (int, error) {
	if !p.prepared {
		return p.changes(ctx, text, args...)
	}
	st, err := p.prepare(ctx, text) //nolint:sqlclosecheck // the pool closes it
	if err != nil {
		return 0, err
	}
	return affected(st.ExecContext(ctx, args...))
}

// changes is executes as plans is selects.
func (p *pool) changes(ctx context.Context, text string, args ...any) (int, error) {
	return affected(p.db.ExecContext(ctx, p.store.rewrite(text), args...))
}

func affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// transaction is the pool's way to run several statements as one decision.
type transaction struct {
	tx *sqlx.Tx
	p  *pool
}

func (t transaction) selects(ctx context.Context, dest any, text string, args ...any) error {
	return t.tx.SelectContext(ctx, dest, t.p.store.rewrite(text), args...)
}

// executor reads the one executor that a statement returns, or returns missing.
func (t transaction) executor(ctx context.Context, missing error, text string, args ...any) (records.Executor, error) {
	var rows []executorRow
	err := t.selects(ctx, &rows, text, args...)
	return first(rows, err, missing)
}

func (t transaction) executes(ctx context.Context, text string, args ...any) (int, error) {
	return affected(t.tx.ExecContext(ctx, t.p.store.rewrite(text), args...))
}

// transact runs f in a transaction that first queues on the fleet row. It
// commits unless f fails. Behind a pooler the limits are the transaction's own.
func (p *pool) transact(ctx context.Context, f func(ctx context.Context, t transaction) error) (err error) {
	tx, err := p.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the connection may be gone, and with it the transaction
		}
	}()
	if !p.prepared {
		for name, value := range p.limits.settings() {
			if name == "default_transaction_isolation" {
				continue
			}
			if _, err := tx.ExecContext(ctx, "SELECT set_config($1, $2, true)", name, value); err != nil {
				return err
			}
		}
	}
	t := transaction{tx: tx, p: p}
	if _, err := t.executes(ctx, lockFleet); err != nil {
		return err
	}
	if err := f(ctx, t); err != nil {
		return err
	}
	return tx.Commit()
}

// attempt is one use of a pool. The context that f gets does not end with a
// caller's: what was sent is read to its end. It ends when the limits say that
// nothing will come of it any more.
func (p *pool) attempt(ctx context.Context, name string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*p.limits.silence()+connectTimeout, errSilence)
	defer cancel()
	return p.batch(ctx, name, 1, f)
}

// batch is attempt for those of whom there are never more than connections, so
// that none waits for one for long: the limit on silence is limit enough. The
// driver starts a goroutine a statement to watch a context that can end, which
// the hot path need not pay for. It times the use, tells the observer,
// translates the error, and lets go of connections that are no use any more.
func (p *pool) batch(ctx context.Context, name string, rows int, f func(ctx context.Context) error) error {
	begin := time.Now()
	err := f(ctx)
	if err != nil && faultOf(err) == faultReadOnly {
		p.forget()
	}
	ours := classify(ctx, name, err)
	p.store.config.Observe(Observation{Name: name, Rows: rows, Took: time.Since(begin), Err: ours})
	return ours
}

// forget closes the idle connections. Those in use close when they fail in
// their turn.
func (p *pool) forget() {
	p.db.SetMaxIdleConns(0)
	p.db.SetMaxIdleConns(p.limits.connections)
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, st := range p.statements {
		errs = append(errs, ignoreBroken(st.Close()))
	}
	return errors.Join(append(errs, ignoreBroken(p.db.Close()))...)
}

// ignoreBroken drops what closing says about a connection that was gone.
func ignoreBroken(err error) error {
	if err == nil || faultOf(err) == faultUnavailable {
		return nil
	}
	return err
}

// call runs f to its end and returns early if ctx ends first, with its cause.
// What f wrote then may or may not have landed, and the store's Close waits
// for it.
func call[T any](ctx context.Context, s *Store, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	done := make(chan result, 1)
	if !s.enter() {
		return none, fmt.Errorf("%w: %w", records.ErrUnavailable, errClosed)
	}
	go func() {
		defer s.calls.Done()
		value, err := f(context.WithoutCancel(ctx))
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// do is call for an f that returns no value.
func do(ctx context.Context, s *Store, f func(ctx context.Context) error) error {
	_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
