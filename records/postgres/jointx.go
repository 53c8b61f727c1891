package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// ErrNoExecution: the context is not that of work under a claim, such as a
// request without a key.
var ErrNoExecution = errors.New("no execution in this context")

// Join lets the owner's effect and its last write be one transaction of the
// caller's: an effect in the same database is then exactly once, and an owner
// that was overtaken changes nothing at all.
//
// It costs the caller's transaction one statement, its last. The server must
// also end a transaction that idles for long, or one that stands still would
// keep its locks from its successor: where the sessions of DB have an
// idle_in_transaction_session_timeout of at most half the lease (in the DSN,
// or ALTER ROLE … SET) that is given; elsewhere each transaction sets it by one
// more statement, its first.
//
// What reconciles such an operation is takeover.Reexecute, the constant
// not_applied: a record that is not finalized proves that nothing was done.
type Join struct {
	Store *Store
	// DB is a pool on the store's database. A caller with a *sql.DB passes
	// sqlx.NewDb(db, "postgres").
	DB *sqlx.DB
	// Seal, if set, makes of a response what is stored of it under the fence.
	Seal func(id records.ID, f records.Fence, r records.Response) (records.Response, error)

	// most is how long a transaction may idle, in milliseconds, where sessions
	// of DB keep to that themselves; else 0.
	most atomic.Int64
}

// FinalizeTx runs work in a transaction and, as the last statement, stores the
// response that it returns as that of the execution whose context this is. The
// client then gets it, too: after a nil error there is nothing left to do for
// a handler.
//
// If the fence no longer holds everything is rolled back and the error is
// records.ErrFenced. If work fails everything is rolled back and the error is
// work's; if it panics, everything is rolled back and the panic goes on. work
// must not end the transaction. While it runs nothing is locked for it.
//
// If the reply to the commit is lost, the record tells whether it landed; while
// it cannot be read the error is records.ErrUnavailable, the handler's own answer
// does not count, and the node finds out. Called again after it landed it
// changes nothing and returns nil: what counts is what the first call stored.
func (j *Join) FinalizeTx(ctx context.Context, work func(ctx context.Context, tx *sqlx.Tx) (records.Response, error)) error {
	e, ok := records.ExecutionFrom(ctx)
	if !ok {
		return fmt.Errorf("join: %w", ErrNoExecution)
	}
	id, f := e.Holds()
	var answer records.Response
	var outcome records.Outcome
	end, err := j.finalize(ctx, id, f, func(ctx context.Context, tx *sqlx.Tx) (_ records.Outcome, err error) {
		if answer, err = work(ctx, tx); err == nil {
			outcome = e.Outcome(answer)
		}
		return outcome, err
	})
	switch end {
	case joinCommitted:
		e.Committed(outcome, answer)
	case joinStood, joinDoubtful:
		e.Doubtful()
	case joinRolledBack:
	}
	return err
}

// joinEnd is how a join's transaction ended.
type joinEnd int

const (
	joinRolledBack joinEnd = iota
	joinCommitted
	joinStood    // rolled back: an earlier one had landed, with whatever it said
	joinDoubtful // the reply to the commit was lost, and the record cannot be read
)

// FinalizeAs is FinalizeTx for work that knows its claim, such as one that runs
// under no middleware.
func (j *Join) FinalizeAs(ctx context.Context, id records.ID, f records.Fence,
	work func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error),
) error {
	_, err := j.finalize(ctx, id, f, work)
	return err
}

// finalize runs the transaction. The error is nil if the record is finalized
// under the fence, by this call or an earlier one.
func (j *Join) finalize(ctx context.Context, id records.ID, f records.Fence,
	work func(ctx context.Context, tx *sqlx.Tx) (records.Outcome, error),
) (joinEnd, error) {
	tx, err := j.DB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return joinRolledBack, classify(ctx, "begin join", err)
	}
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback() // also while work's panic passes; what is gone is rolled back
		}
	}()
	if err := j.bound(ctx, tx, f); err != nil {
		return joinRolledBack, err
	}
	o, err := work(ctx, tx)
	if err != nil {
		return joinRolledBack, err
	}
	if err := o.Validate(); err != nil {
		return joinRolledBack, err
	}
	if j.Seal != nil {
		if o.Response, err = j.Seal(id, f, o.Response); err != nil {
			return joinRolledBack, fmt.Errorf("seal response: %w", err)
		}
	}
	w := finalization(id, f, o)
	if landed, err := j.settle(ctx, tx, w); err != nil {
		return joinRolledBack, err
	} else if landed {
		return joinStood, nil
	}
	err = tx.Commit()
	committed = err == nil
	if err == nil {
		return joinCommitted, nil
	}
	return j.doubt(ctx, w, classify(ctx, "commit join", err))
}

// bound sees to it that the server ends the transaction if it idles, unless
// its session does so already.
func (j *Join) bound(ctx context.Context, tx *sqlx.Tx, f records.Fence) error {
	if j.most.Load() > 0 {
		return nil
	}
	var most int64
	var bounded bool
	var set sql.NullString
	err := tx.QueryRowContext(ctx, inline(j.Store.rewrite(joinBound), f.Executor.String())).Scan(&most, &bounded, &set)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("begin join: %w", records.ErrFenced) // no such executor, so no such claim
	}
	if err == nil && bounded {
		j.most.Store(most)
	}
	return classify(ctx, "begin join", err)
}

// settle writes the outcome under the fence. landed: it was written before.
func (j *Join) settle(ctx context.Context, tx *sqlx.Tx, w settlement) (landed bool, _ error) {
	var idle int64
	text := inline(j.Store.rewrite(settleOne)+joinReturning, settleArguments(w)...)
	err := tx.QueryRowContext(ctx, text).Scan(&idle)
	switch {
	case err == nil:
		if idle == 0 || idle > j.most.Load() {
			j.most.Store(0) // not every session is as the first one was
		}
		return false, nil
	case !errors.Is(err, sql.ErrNoRows):
		return false, classify(ctx, "finalize in join", err)
	}
	// The same call may have landed before, its reply lost.
	var row settledRow
	err = tx.GetContext(ctx, &row, inline(j.Store.rewrite(joinSettled), w.id[:]))
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return false, classify(ctx, "finalize in join", err)
	case err == nil && row.is(w):
		return true, nil
	}
	return false, fmt.Errorf("finalize in join: %w", records.ErrFenced)
}

// doubt finds out about a commit whose reply said nothing good. If the record
// is not finalized the transaction may still be on its way, so the error stays.
func (j *Join) doubt(ctx context.Context, w settlement, lost error) (joinEnd, error) {
	if !errors.Is(lost, records.ErrUnavailable) {
		return joinRolledBack, lost // the server said no
	}
	held, err := j.Store.Load(context.WithoutCancel(ctx), w.id)
	if err == nil && held.Record.Fence() == w.fence && held.Record.State == records.Finalized {
		return joinCommitted, nil
	}
	return joinDoubtful, lost
}

// inline puts the arguments into a statement's text. On a caller's pool, which
// need not be set up as ours are, the driver would prepare a statement with
// arguments first, which is a round trip more. Only what was made here comes
// in: bytes in hexadecimal, numbers, and names of ours.
func inline(text string, args ...any) string {
	pairs := make([]string, 0, 2*len(args))
	for i, a := range slices.Backward(args) { // $10 before $1, which begins it
		pairs = append(pairs, "$"+strconv.Itoa(i+1), literal(a))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func literal(a any) string {
	switch v := a.(type) {
	case []byte:
		if v != nil {
			return "decode('" + hex.EncodeToString(v) + "', 'hex')"
		}
	case string:
		return pq.QuoteLiteral(v)
	case int:
		return "(" + strconv.Itoa(v) + ")"
	case int64:
		return "(" + strconv.FormatInt(v, 10) + ")"
	}
	return "NULL"
}
