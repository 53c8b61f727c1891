package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"
)

// Steps runs a statement, takes it back, and returns how many steps of SQLite's
// machine it took: a measure of work that knows no noise.
func Steps(ctx context.Context, s *Store, text string, args ...any) (steps int, err error) {
	if err := s.writer.exec(ctx, savepoint); err != nil {
		return 0, err
	}
	err = s.writer.conn.Raw(func(c any) (err error) {
		dc, ok := c.(driver.Conn)
		if !ok {
			return fmt.Errorf("connection is a %T", c)
		}
		stmt, _, err := dc.Raw().Prepare(text)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stmt.Close()) }()
		for i, arg := range args {
			if err := bind(stmt, i+1, arg); err != nil {
				return err
			}
		}
		for stmt.Step() {
		}
		steps = stmt.Status(sqlite3.STMTSTATUS_VM_STEP, false)
		return stmt.Err()
	})
	return steps, errors.Join(err, s.writer.exec(ctx, rollbackTo), s.writer.exec(ctx, releaseSavepoint))
}

func bind(stmt *sqlite3.Stmt, at int, arg any) error {
	switch arg := arg.(type) {
	case nil:
		return stmt.BindNull(at)
	case int64:
		return stmt.BindInt64(at, arg)
	case string:
		return stmt.BindText(at, arg)
	case []byte:
		return stmt.BindBlob(at, arg)
	}
	return fmt.Errorf("parameter %d is a %T", at, arg)
}
