package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// errNoSchema: the database has no fleet row, so nothing was migrated yet.
var errNoSchema = errors.New("no schema")

// queryer is the one method that a pool, a connection and a transaction share.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readFleet reads the fleet row. errNoSchema: there is none.
func readFleet(ctx context.Context, q queryer) (records.Fleet, error) {
	var f records.Fleet
	err := q.QueryRowContext(ctx, selectFleet).Scan(&f.Cluster, &f.Schema, &f.MinBinary)
	if isUndefined(err) || errors.Is(err, sql.ErrNoRows) {
		return records.Fleet{}, errNoSchema
	}
	return f, classify(ctx, "read fleet", err)
}

// admit says whether a binary that was built for schema number binary, and
// works with stores from oldest on, may use the store. Its own number and the
// store's may differ by what the two sides say they tolerate, so nodes of two
// versions can share a store while an upgrade, or a rollback, rolls.
func admit(f records.Fleet, binary, oldest int) error {
	switch {
	case f.Schema < oldest:
		return fmt.Errorf("%w: the store is at schema %d, this binary needs %d: run the migrations", records.ErrSchemaTooOld, f.Schema, oldest)
	case binary < f.MinBinary:
		return fmt.Errorf("%w: this binary was built for schema %d, the store is at %d and admits %d and newer",
			records.ErrBinaryTooOld, binary, f.Schema, f.MinBinary)
	}
	return nil
}

// quoteName quotes a table name for a statement text.
func quoteName(name string) string { return pq.QuoteIdentifier(name) }
