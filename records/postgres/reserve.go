package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// reserveRounds bounds how often a reservation that found its key taken, and
// then free, is tried again.
const reserveRounds = 8

var errUnsteady = errors.New("the key kept changing hands")

// Reserve decides in one statement who owns the key.
func (s *Store) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	if err := r.Validate(); err != nil {
		return records.Reserved{}, err
	}
	got, err := s.reserving.Do(ctx, r)
	return got, queued(err)
}

func weightOfReservation(r records.Reservation) int {
	return len(r.Realm) + len(r.Key) + len(r.Operation) + len(r.Resource) + len(r.Request) + 200
}

// reserveBatch claims what is free and reads what is not. A key that several
// callers want is claimed for the first; the others read what the first wrote.
// What stood there when it was claimed and was free when it was read goes
// around again.
func (s *Store) reserveBatch(ctx context.Context, p *pool, batch []records.Reservation) []groupcommit.Result[records.Reserved] {
	results := make([]groupcommit.Result[records.Reserved], len(batch))
	open := make([]int, len(batch))
	for i := range open {
		open[i] = i
	}
	for range reserveRounds {
		open = s.reserveRound(ctx, p, batch, open, results)
		if len(open) == 0 {
			return results
		}
	}
	for _, i := range open {
		results[i].Err = fmt.Errorf("reserve: %w: %w", records.ErrUnavailable, errUnsteady)
	}
	return results
}

// reserveRound settles what it can of the open reservations and returns those
// that it could not.
func (s *Store) reserveRound(ctx context.Context, p *pool, batch []records.Reservation, open []int, results []groupcommit.Result[records.Reserved]) []int {
	won, errs := s.claim(ctx, p, batch, firstOfEach(batch, open))
	var taken []int
	for _, i := range open {
		switch c, ok := won[i]; {
		case ok:
			results[i].Value, results[i].Err = owned(batch[i], c), nil
		case errs[i] != nil:
			results[i].Err = errs[i]
		default:
			taken = append(taken, i)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	rows, err := s.loadRows(ctx, p, len(taken), func(n int) (records.ExecutorID, records.ID) {
		return batch[taken[n]].By, batch[taken[n]].ID
	})
	var again []int
	for n, i := range taken {
		if err != nil {
			results[i].Err = err
			continue
		}
		switch row := rows[n]; {
		case row.found() && !row.Claimable:
			results[i].Value, results[i].Err = standing(batch[i], row)
		case !row.askerActive():
			results[i].Err = fmt.Errorf("reserve: %w", records.ErrNotActive)
		default:
			again = append(again, i)
		}
	}
	return again
}

// firstOfEach picks, of the open reservations, one for each id, in order of id.
func firstOfEach(batch []records.Reservation, open []int) []int {
	first := slices.Clone(open)
	slices.SortStableFunc(first, func(a, b int) int { return batch[a].ID.Compare(batch[b].ID) })
	return slices.CompactFunc(first, func(a, b int) bool { return batch[a].ID == batch[b].ID })
}

// claimedRow is what a reserve statement returns: a claimed record, an executor
// that claims, or both.
type claimedRow struct {
	ID        []byte
	Epoch     sql.NullInt64
	CreatedAt sql.NullTime
	executorRow
}

func (r *claimedRow) targets() []any {
	return slices.Concat([]any{&r.ID, &r.Epoch, &r.CreatedAt}, r.executorRow.targets())
}

// claimed is a record that was claimed.
type claimed struct {
	epoch     int64
	createdAt time.Time
	by        records.Executor
}

// claim sends the reservations at the given places, sorted and each for an id
// of its own. It returns what was claimed and the errors, by place.
func (s *Store) claim(ctx context.Context, p *pool, batch []records.Reservation, at []int) (map[int]claimed, map[int]error) {
	won, errs := make(map[int]claimed, len(at)), map[int]error{}
	if len(at) > 1 {
		err := s.claimMany(ctx, p, batch, at, won)
		if err == nil {
			return won, errs
		}
		if errors.Is(err, records.ErrUnavailable) && !isContended(err) {
			for _, i := range at {
				errs[i] = err
			}
			return won, errs
		}
	}
	for _, i := range at {
		switch c, ok, err := s.claimOne(ctx, p, batch[i]); {
		case err != nil:
			errs[i] = err
		case ok:
			won[i] = c
		}
	}
	return won, errs
}

func (s *Store) claimOne(ctx context.Context, p *pool, r records.Reservation) (claimed, bool, error) {
	var row claimedRow
	err := p.batch(ctx, "reserve", 1, func(ctx context.Context) error {
		return p.reads(ctx, func(rows *sqlx.Rows) error { return rows.Scan(row.targets()...) }, reserveOne, s.config.Grace.Microseconds(), r.By.String(),
			r.ID[:], []byte(r.Realm), []byte(r.Key), []byte(r.Operation), []byte(r.Resource),
			r.Fingerprint[:], r.Attempt[:], r.Request)
	})
	if err != nil || row.ID == nil {
		return claimed{}, false, err
	}
	return claimed{row.Epoch.Int64, utc(row.CreatedAt), row.executor()}, true, nil
}

func (s *Store) claimMany(ctx context.Context, p *pool, batch []records.Reservation, at []int, won map[int]claimed) error {
	n := len(at)
	distinct := make(map[records.ExecutorID]bool, 1)
	askers, ids := newArray(oid.T_uuid, n, 16), newArray(oid.T_bytea, n, 32)
	realms, keys := newArray(oid.T_bytea, n, 16), newArray(oid.T_bytea, n, 48)
	operations, resources := newArray(oid.T_bytea, n, 32), newArray(oid.T_bytea, n, 32)
	fingerprints, attempts := newArray(oid.T_bytea, n, 32), newArray(oid.T_bytea, n, 16)
	requests := newArray(oid.T_bytea, n, 0)
	for _, i := range at {
		r := &batch[i]
		distinct[r.By] = true
		askers.add(r.By[:])
		ids.add(r.ID[:])
		realms.addString(r.Realm)
		keys.addString(r.Key)
		operations.addString(r.Operation)
		resources.addString(r.Resource)
		fingerprints.add(r.Fingerprint[:])
		attempts.add(r.Attempt[:])
		requests.addNullable(r.Request)
	}
	place := make(map[records.ID]int, n)
	for _, i := range at {
		place[batch[i].ID] = i
	}
	executors := make(map[records.ExecutorID]records.Executor, len(distinct))
	var row claimedRow
	targets := row.targets()
	err := p.batch(ctx, "reserve", n, func(ctx context.Context) error {
		return p.reads(ctx, func(rows *sqlx.Rows) error {
			if err := rows.Scan(targets...); err != nil {
				return err
			}
			if row.ID == nil {
				executors[records.ExecutorID(row.executorRow.ID)] = row.executor()
				return nil
			}
			won[place[records.ID(row.ID)]] = claimed{epoch: row.Epoch.Int64, createdAt: utc(row.CreatedAt)}
			return nil
		}, reserveMany, s.config.Grace.Microseconds(), uuids(slices.Collect(maps.Keys(distinct))...),
			askers, ids, realms, keys, operations, resources, fingerprints, attempts, requests)
	})
	if err != nil {
		clear(won)
		return err
	}
	for i, c := range won {
		c.by = executors[batch[i].By]
		won[i] = c
	}
	return nil
}

// owned is the answer to a reservation that was granted.
func owned(r records.Reservation, c claimed) records.Reserved {
	return records.Reserved{Owned: true, Held: records.Held{Executor: c.by, Record: records.Record{
		ID: r.ID, Realm: r.Realm, Key: r.Key, Operation: r.Operation, Resource: r.Resource,
		Fingerprint: r.Fingerprint, State: records.InProgress,
		Executor: c.by.ID, ExecutorURL: c.by.URL, Epoch: c.epoch, Attempt: r.Attempt,
		Request: r.Request, CreatedAt: c.createdAt,
	}}}
}

// standing is the answer to a reservation that found something there: the
// caller's own claim, if a reply was lost, or somebody else's record.
func standing(r records.Reservation, row heldRow) (records.Reserved, error) {
	held, err := row.held()
	if err != nil {
		return records.Reserved{}, fmt.Errorf("reserve: %w", err)
	}
	mine := held.Record.State == records.InProgress && held.Record.Attempt == r.Attempt && held.Record.Executor == r.By
	return records.Reserved{Owned: mine, Held: held}, nil
}
