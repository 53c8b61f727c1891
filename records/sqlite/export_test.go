package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// WithRewrite returns c with statements changed before they are prepared.
func WithRewrite(c Config, rewrite func(text string) string) Config {
	c.rewrite = rewrite
	return c
}

// WithMaxBatch returns c with at most n decisions in a transaction.
func WithMaxBatch(c Config, n int) Config {
	c.maxBatch = n
	return c
}

// The statements whose guards are tested, and the guards that have names.
const (
	Fence           = fence
	FenceReplaced   = fenceReplaced
	FenceByOperator = fenceByOperator
	Heartbeat       = heartbeat
	PurgeExecutors  = purgeExecutors
	Reserve         = reserve
	TakeOver        = takeOver
	ClaimUnknown    = claimUnknown
	Finalize        = finalize
	Purge           = purge
	StrayFlows      = strayFlows

	ReleaseByOperator = releaseByOperator
	ResolveByOperator = resolveByOperator
	EraseRecord       = eraseRecord
	ExamineRealm      = examineRealm
	ReadEvents        = readEvents
	EventsOfRecord    = eventsOfRecord
	EventsOfExecutor  = eventsOfExecutor
	BoundOfRecord     = eventsBoundOfRecord
	PurgeEvents       = purgeEvents

	Load       = load
	InProgress = inProgress
	Orphans    = orphans
	ListBound  = listBound
	List       = list

	Claimable   = claimable
	Expired     = expired
	Unrefuted   = fenceUnrefuted
	Unprotected = fenceUnprotected
	Observed    = fenceObserved
	Unbraked    = fenceUnbraked
)

// MigrateWith runs migration steps over a file.
var MigrateWith = migrateWith

// Exec runs statements on a file, as another tool would.
func Exec(ctx context.Context, c Config, text string) error {
	return withTool(ctx, c, func(d *migrator) error { return d.exec(text) })
}

// Strings reads the first column of a query on a file.
func Strings(ctx context.Context, c Config, text string) (all []string, err error) {
	return all, withTool(ctx, c, func(d *migrator) error { return d.conn.SelectContext(ctx, &all, text) })
}

func withTool(ctx context.Context, c Config, use func(*migrator) error) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	d, err := openMigrator(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(use(d), d.Close())
}

// LimitPages makes the disk look full after n pages.
func LimitPages(s *Store, n int) error {
	return s.writer.exec(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", n))
}

// WithObserve returns c with the size of every batch reported.
func WithObserve(c Config, observe func(decisions int)) Config {
	c.Observe = observe
	return c
}

// Explain returns the plan of a statement of the writer, a line a step.
func Explain(ctx context.Context, s *Store, text string, args ...any) (steps []string, err error) {
	rows, err := s.writer.conn.QueryxContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		steps = append(steps, detail)
	}
	return steps, rows.Err()
}

// SetListWindow makes a page of a listing examine at most n rows.
func SetListWindow(s *Store, n int) { s.listWindow = n }

// Translate is the one place where errors of the driver become ours.
var Translate = translate

// Occupy keeps the file's write transaction open until leave is closed.
func Occupy(ctx context.Context, s *Store, entered chan<- struct{}, leave <-chan struct{}) error {
	return s.write(ctx, "occupy", func(t *tx) error {
		t.exec(rekeyFleet, "half-done", t.config.Cluster)
		close(entered)
		<-leave
		t.exec(rekeyFleet, t.config.Cluster, "half-done")
		return nil
	})
}
