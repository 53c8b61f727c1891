package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ncruces/go-sqlite3"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// ErrReadOnly: the file, or its folder, cannot be written. It matches
// [records.ErrUnavailable], because a file system that was remounted may come
// back, but at a start it is a fault of the set-up.
var ErrReadOnly = fmt.Errorf("%w: store file is read-only", records.ErrUnavailable)

// errClosed is what calls after Close get.
var errClosed = fmt.Errorf("%w: store is closed", records.ErrUnavailable)

// translate turns an error of the driver, of database/sql or of a context into
// ours, once. The original stays in the chain.
func translate(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", op, records.ErrNotFound)
	case errors.Is(err, groupcommit.ErrClosed), errors.Is(err, sql.ErrConnDone):
		return fmt.Errorf("%s: %w", op, errClosed)
	case ctx.Err() != nil:
		// Interrupted, or left waiting: the cause says more than the driver.
		return fmt.Errorf("%s: %w: %w", op, records.ErrUnavailable, context.Cause(ctx))
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%s: %w: %w", op, kind, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// kindOf names the sentinel for what went wrong below, nil if it is nobody's
// fault but ours.
func kindOf(err error) error {
	code, isSQLite := errors.AsType[sqlite3.ErrorCode](err)
	switch {
	case !isSQLite:
		if _, isPath := errors.AsType[*fs.PathError](err); isPath {
			return records.ErrUnavailable
		}
		return nil
	case code == sqlite3.CORRUPT, code == sqlite3.NOTADB:
		return records.ErrCorrupt
	case code == sqlite3.READONLY, code == sqlite3.PERM:
		return ErrReadOnly
	case code == sqlite3.CONSTRAINT, code == sqlite3.ERROR, code == sqlite3.MISUSE,
		code == sqlite3.MISMATCH, code == sqlite3.RANGE, code == sqlite3.TOOBIG:
		return nil
	default: // busy, locked, I/O, full, interrupted, out of memory, cannot open
		return records.ErrUnavailable
	}
}
