package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// readerConns are enough to keep two processors busy reading; each costs a few
// megabytes.
const readerConns = 4

// Open opens the file, makes it if it is missing and migrates it if it is old.
// Besides the errors of a [records.Store]: an [records.InvalidError] about the
// path, [ErrReadOnly], [records.ErrCorrupt] if the file is something else,
// [records.ErrWrongCluster], [records.ErrBinaryTooOld].
func Open(ctx context.Context, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if c.Path, err = filepath.Abs(c.Path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := prepareFile(c.Path); err != nil {
		return nil, fmt.Errorf("open store %s: %w", c.Path, err)
	}
	s := &Store{config: c, listWindow: defaultListWindow}
	s.jobs = groupcommit.New(groupcommit.Config[job]{
		MaxItems: c.maxBatch,
		Observe:  c.Observe,
		Weight:   func(j job) int { return j.weight },
	}, s.commit)
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", c.Path, err), s.shut())
	}
	return s, nil
}

// open does everything that touches the file in this process' turn, so that of
// several processes that start at once one migrates and the others find it
// done.
func (s *Store) open(ctx context.Context) (err error) {
	wait, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	if s.turn, err = openTurn(s.config.Path + "-turn"); err != nil {
		return translate(ctx, "take a place", err)
	}
	if err := s.turn.acquire(wait); err != nil {
		return translate(wait, "wait for a turn", err)
	}
	defer s.turn.release()
	if err := migrateFile(ctx, s.config); err != nil {
		return err
	}
	if err := prepareIndex(s.config.Path + "-shm"); err != nil {
		return err
	}
	if s.writer, err = openWriter(ctx, s.config); err != nil {
		return translate(ctx, "open writer", err)
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	return translate(ctx, "open readers", s.openReaders(ctx))
}

// join takes a fresh file for the cluster and checks that it is ours.
func (s *Store) join(ctx context.Context) error {
	var fleet fleetRow
	if err := s.writer.conn.GetContext(ctx, &fleet, selectFleet); err != nil {
		return translate(ctx, "read fleet", err)
	}
	if err := admit(records.Fleet(fleet)); err != nil {
		return err
	}
	if fleet.Cluster == "" {
		if _, err := s.writer.conn.ExecContext(ctx, rekeyFleet, s.config.Cluster, ""); err != nil {
			return translate(ctx, "claim cluster", err)
		}
		return nil
	}
	if fleet.Cluster != s.config.Cluster {
		return fmt.Errorf("%w: it belongs to %q, this node to %q", records.ErrWrongCluster, fleet.Cluster, s.config.Cluster)
	}
	return nil
}

func (s *Store) openReaders(ctx context.Context) error {
	db, err := driver.Open(dsn(s.config, "query_only(1)"))
	if err != nil {
		return err
	}
	s.readers = sqlx.NewDb(db, "sqlite3")
	s.readers.SetMaxOpenConns(readerConns)
	s.readers.SetMaxIdleConns(readerConns)
	s.reads, err = prepare(ctx, s.readers, s.config, slices.Concat(readTexts, flowReads))
	return err
}

// readTexts are the statements that readers run.
var readTexts = []string{
	selectFleet, load, inProgress, orphans, listBound, list, selectExecutor, listExecutors,
	eventsBound, eventsBoundOfRecord, eventsBoundOfExecutor, readEvents, eventsOfRecord, eventsOfExecutor, examineRealm,
}

// shut closes what is open, whatever is.
func (s *Store) shut() error {
	faults := closeAll(s.reads)
	if s.readers != nil {
		faults = append(faults, s.readers.Close())
	}
	if s.writer != nil {
		faults = append(faults, s.writer.close())
	}
	if s.turn != nil {
		faults = append(faults, s.turn.close())
	}
	return errors.Join(faults...)
}

// prepareFile makes the file, for its owner only, before SQLite would make it
// for everybody, and finds faults of the set-up that SQLite reports vaguely.
func prepareFile(path string) error {
	invalid := func(reason string, cause error) error {
		return errors.Join(&records.InvalidError{Field: "path", Reason: reason}, cause)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return invalid("not a regular file", nil)
	case err == nil && info.Mode().Perm()&0o222 == 0:
		return ErrReadOnly
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", records.ErrUnavailable, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return invalid("its folder does not exist", err)
	case errors.Is(err, fs.ErrPermission):
		return errors.Join(ErrReadOnly, err)
	case err != nil:
		return fmt.Errorf("%w: %w", records.ErrUnavailable, err)
	}
	return f.Close()
}

// prepareIndex makes the index of the write-ahead log, empty and for its owner
// only, if the driver would have to, which makes it for everybody.
func prepareIndex(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", records.ErrUnavailable, err)
	}
	return f.Close()
}

// dsn names the file for the driver. The write-ahead log gets the mode of the
// file. SQLite's own wait covers what our turns do not: recovery after a
// crash, and other tools.
func dsn(c Config, pragmas ...string) string {
	q := url.Values{"modeof": {c.Path}, "_txlock": {"immediate"}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", c.Patience.Milliseconds()))
	q.Add("_pragma", "synchronous(FULL)")
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	path := filepath.ToSlash(c.Path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	// SQLite knows %20 and no plus sign.
	query := strings.ReplaceAll(q.Encode(), "+", "%20")
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query}).String()
}
