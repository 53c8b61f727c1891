package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// A job is one decision. It runs inside the transaction of its batch, after the
// jobs before it, and sees what they wrote. With an error it has written
// nothing.
type job struct {
	weight int // bytes it writes, roughly
	run    func(*tx) (any, error)
}

// write queues a decision without a value and returns once it is durable.
func (s *Store) write(ctx context.Context, op string, run func(*tx) error) error {
	_, err := decide(ctx, s, op, 0, func(t *tx) (struct{}, error) { return struct{}{}, run(t) })
	return err
}

// decide queues a decision and returns its value once it is durable.
func decide[T any](ctx context.Context, s *Store, op string, weight int, run func(*tx) (T, error)) (T, error) {
	value, err := s.jobs.Do(ctx, job{weight: weight, run: func(t *tx) (any, error) { return run(t) }})
	decided, _ := value.(T) // the zero value with an error
	if err != nil && !isRefusal(err) {
		return decided, translate(ctx, op, err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", op, err)
	}
	return decided, err
}

// refusal marks the error of a job that decided against its caller, as opposed
// to one that could not decide.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func isRefusal(err error) bool { _, ok := errors.AsType[refusal](err); return ok }

// commit writes a batch in one transaction. If the transaction fails for a
// reason that may lie in one job, such as one that does not fit on the disk,
// each job gets a transaction of its own, so that it fails alone.
func (s *Store) commit(batch []job) []groupcommit.Result[any] {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Patience)
	defer cancel()
	results, err := s.attempt(ctx, batch)
	switch {
	case err == nil:
		return results
	case len(batch) > 1 && !errors.Is(err, errNoTurn):
		results = results[:0]
		for i := range batch {
			results = append(results, s.commit(batch[i:i+1])...)
		}
		return results
	}
	results = make([]groupcommit.Result[any], len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// errNoTurn: the write lock was not won in time. Nothing was tried.
var errNoTurn = fmt.Errorf("%w: others are writing", records.ErrUnavailable)

// attempt runs a batch in one transaction. With an error nothing was written,
// unless it is the commit's, which may have landed.
func (s *Store) attempt(ctx context.Context, batch []job) ([]groupcommit.Result[any], error) {
	if err := s.turn.acquire(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTurn, err)
	}
	defer s.turn.release()
	if err := s.writer.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		if errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.INTERRUPT) {
			return nil, fmt.Errorf("%w: %w", errNoTurn, err)
		}
		return nil, err
	}
	// Nothing below waits for anybody, so nothing below is interrupted.
	ctx = context.WithoutCancel(ctx)
	t := &tx{writer: s.writer, config: &s.config, ctx: ctx}
	results := make([]groupcommit.Result[any], len(batch))
	for i, j := range batch {
		results[i] = t.run(j)
		if t.broken != nil {
			return nil, errors.Join(t.broken, s.writer.rollback())
		}
	}
	if err := s.writer.exec(ctx, "COMMIT"); err != nil {
		return nil, errors.Join(err, s.writer.rollback())
	}
	return results, nil
}

// tx is what a job works with. Its methods do not return errors of the
// database: the first one ends the transaction, whatever the job makes of the
// zero value it got.
type tx struct {
	*writer
	config *Config
	ctx    context.Context
	broken error
}

func (t *tx) run(j job) groupcommit.Result[any] {
	value, err := j.run(t)
	if err != nil {
		return groupcommit.Result[any]{Err: refusal{err}}
	}
	return groupcommit.Result[any]{Value: value}
}

// now reads the clock, in microseconds.
func (t *tx) now() int64 { return t.config.Clock().UnixMicro() }

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(text string, args ...any) int64 {
	if t.broken != nil {
		return 0
	}
	result, err := t.stmts[text].ExecContext(t.ctx, args...)
	if err != nil {
		t.broken = err
		return 0
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.broken = err
	}
	return n
}

// one reads one row into dest and reports whether there was one.
func (t *tx) one(dest any, text string, args ...any) bool {
	if t.broken != nil {
		return false
	}
	err := t.stmts[text].GetContext(t.ctx, dest, args...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.broken = err
	}
	return err == nil
}

// whole runs steps of which all count or none.
func (t *tx) whole(steps func() error) error {
	t.exec(savepoint)
	err := steps()
	if err != nil {
		t.exec(rollbackTo)
	}
	t.exec(releaseSavepoint)
	return err
}

const (
	savepoint        = `SAVEPOINT job`
	rollbackTo       = `ROLLBACK TO job`
	releaseSavepoint = `RELEASE job`
)

// writer is the one connection of this process that writes.
type writer struct {
	db    *sqlx.DB
	conn  *sqlx.Conn
	stmts map[string]*sqlx.Stmt
}

// writeTexts are the statements that the writer runs.
var writeTexts = []string{
	rekeyFleet, foreignExecutor, fenceReplaced, insertExecutor, selectHolder, heartbeat, drain, retire, attest, selectExecutor,
	fence, explainFence, fenceByOperator, purgeExecutors,
	reserve, load, takeOver, claimUnknown, finalize, release, markUnknown, landed, purge,
	numberEvents, noteEvent, purgeEvents,
	releaseByOperator, resolveByOperator, eraseRecord, isInProgress, countErasure,
	savepoint, rollbackTo, releaseSavepoint,
}

func openWriter(ctx context.Context, c Config) (*writer, error) {
	db, err := driver.Open(dsn(c, "cache_size(-16384)"))
	if err != nil {
		return nil, err
	}
	w := &writer{db: sqlx.NewDb(db, "sqlite3")}
	w.db.SetMaxOpenConns(1)
	if w.conn, err = w.db.Connx(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if w.stmts, err = prepare(ctx, w.conn, c, slices.Concat(writeTexts, flowWrites)); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// prepare prepares all texts. Those that succeeded are returned even with an
// error, to be closed.
func prepare(ctx context.Context, on sqlx.PreparerContext, c Config, texts []string) (map[string]*sqlx.Stmt, error) {
	stmts := make(map[string]*sqlx.Stmt, len(texts))
	for _, text := range texts {
		stmt, err := sqlx.PreparexContext(ctx, on, c.rewrite(text)) //nolint:sqlclosecheck // closeAll does
		if err != nil {
			return stmts, err
		}
		stmts[text] = stmt
	}
	return stmts, nil
}

func closeAll(stmts map[string]*sqlx.Stmt) (faults []error) {
	for _, stmt := range stmts {
		faults = append(faults, stmt.Close())
	}
	return faults
}

func (w *writer) exec(ctx context.Context, text string) error {
	_, err := w.conn.ExecContext(ctx, text)
	return err
}

// rollback ends the transaction if SQLite has not done so itself.
func (w *writer) rollback() error {
	return w.conn.Raw(func(c any) error {
		dc, ok := c.(driver.Conn)
		if !ok || dc.Raw().GetAutocommit() {
			return nil
		}
		return dc.Raw().Exec("ROLLBACK")
	})
}

func (w *writer) close() error {
	faults := closeAll(w.stmts)
	if w.conn != nil {
		faults = append(faults, w.conn.Close())
	}
	return errors.Join(append(faults, w.db.Close())...)
}

// micros is a duration as the file keeps it.
func micros(d time.Duration) int64 { return d.Microseconds() }
