package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// FinalizeTx lets the owner's effect and its last write be one transaction: an
// effect in the same database is then exactly once.
//
// It begins a transaction on db, a pool of the caller's on the same database,
// gives it to work, and as the last statement stores the outcome that work
// returns, under the fence. If the fence no longer holds everything is rolled
// back and the error is records.ErrFenced. If work fails everything is rolled
// back and the error is work's; if it panics, everything is rolled back and
// the panic goes on. work must not end the transaction.
//
// While work runs nothing is locked for it, so a take-over does not wait; the
// server ends the transaction when it idles for longer than half the owner's
// lease. If the reply to the commit is lost, the record tells whether it
// landed; while it cannot be read the error is records.ErrUnavailable, and the
// same call again finds out first. Called again after it landed it does
// nothing and returns nil.
func (s *Store) FinalizeTx(ctx context.Context, db *sql.DB, id records.ID, f records.Fence,
	work func(ctx context.Context, tx *sql.Tx) (records.Outcome, error),
) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return classify(ctx, "begin join", err)
	}
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback() // also while work's panic passes; what is gone is rolled back
		}
	}()
	landed, err := s.joinBegin(ctx, tx, id, f)
	if landed || err != nil {
		return err
	}
	o, err := work(ctx, tx)
	if err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	w := finalization(id, f, o)
	n, err := affected(tx.ExecContext(ctx, s.rewrite(settleOne), settleArguments(w)...))
	if err != nil {
		return classify(ctx, "finalize in join", err)
	}
	if n == 0 {
		// The same call may have landed meanwhile, its reply lost.
		if landed, err := s.joinBegin(ctx, tx, id, f); landed || err != nil {
			return err
		}
		return fmt.Errorf("finalize in join: %w", records.ErrFenced)
	}
	err = tx.Commit()
	committed = err == nil
	if err == nil {
		return nil
	}
	return s.joinDoubt(ctx, w, classify(ctx, "commit join", err))
}

// joinBegin reads whether the record is the owner's to finalize. landed: it
// was finalized under this fence before.
func (s *Store) joinBegin(ctx context.Context, tx *sql.Tx, id records.ID, f records.Fence) (landed bool, _ error) {
	var state, idle string
	var executor uuid
	var epoch int64
	err := tx.QueryRowContext(ctx, s.rewrite(joinBegin), id[:], f.Executor.String()).Scan(&state, &executor, &epoch, &idle)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, fmt.Errorf("begin join: %w", records.ErrFenced)
	case err != nil:
		return false, classify(ctx, "begin join", err)
	case records.Fence{Executor: records.ExecutorID(executor), Epoch: epoch} != f:
		return false, fmt.Errorf("begin join: %w", records.ErrFenced)
	}
	switch records.State(state) {
	case records.InProgress:
		return false, nil
	case records.Finalized:
		return true, nil
	case records.Unknown, records.Released:
	}
	return false, fmt.Errorf("begin join: %w", records.ErrFenced)
}

// joinDoubt finds out about a commit whose reply said nothing good. If the
// record is not finalized the transaction may still be on its way, so the
// error stays.
func (s *Store) joinDoubt(ctx context.Context, w settlement, lost error) error {
	if !errors.Is(lost, records.ErrUnavailable) {
		return lost // the server said no
	}
	held, err := s.Load(context.WithoutCancel(ctx), w.id)
	if err == nil && held.Record.Fence() == w.fence && held.Record.State == records.Finalized {
		return nil
	}
	return lost
}
