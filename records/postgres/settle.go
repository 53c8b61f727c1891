package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/groupcommit"
)

// settlement is an owner's last write.
type settlement struct {
	id        records.ID
	fence     records.Fence
	state     records.State
	response  *records.Response // nil unless finalized
	headers   []byte            // of the response, in stored form
	retention time.Duration
}

func (w settlement) weight() int {
	if w.response == nil {
		return 100
	}
	return 100 + len(w.headers) + len(w.response.Body)
}

// status is null without a response.
func (w settlement) status() any {
	if w.response == nil {
		return nil
	}
	return w.response.Status
}

func (w settlement) body() []byte {
	if w.response == nil {
		return nil
	}
	return w.response.Body
}

// Finalize stores the response and starts its retention.
func (s *Store) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return s.settle(ctx, finalization(id, f, o))
}

func finalization(id records.ID, f records.Fence, o records.Outcome) settlement {
	return settlement{
		id: id, fence: f, state: records.Finalized, retention: o.Retention,
		response: &o.Response, headers: records.AppendHeaders(nil, o.Response.Headers),
	}
}

// Release frees the key: provably nothing was done.
func (s *Store) Release(ctx context.Context, id records.ID, f records.Fence) error {
	return s.settle(ctx, settlement{id: id, fence: f, state: records.Released})
}

// MarkUnknown says that nobody can tell whether the effect took place.
func (s *Store) MarkUnknown(ctx context.Context, id records.ID, f records.Fence, retention time.Duration) error {
	if err := records.ValidateRetention(retention); err != nil {
		return err
	}
	return s.settle(ctx, settlement{id: id, fence: f, state: records.Unknown, retention: retention})
}

func (s *Store) settle(ctx context.Context, w settlement) error {
	_, err := s.settling.Do(ctx, w)
	return queued(err)
}

// settleBatch writes the batch. Calls that say the same, which are repeats of
// one another, are written once and answered alike. Of writes to one record
// that differ, under several fences or to several ends, each is written, one
// after the other: only the row can tell which of them holds.
func (s *Store) settleBatch(ctx context.Context, p *pool, batch []settlement) []groupcommit.Result[struct{}] {
	errs := make(map[settlementKey]error, len(batch))
	open := make([]settlement, 0, len(batch))
	for _, w := range batch {
		if _, repeat := errs[w.key()]; !repeat {
			errs[w.key()] = nil
			open = append(open, w)
		}
	}
	slices.SortStableFunc(open, func(a, b settlement) int { return a.id.Compare(b.id) })
	for len(open) > 0 {
		var now, later []settlement
		for _, w := range open {
			if len(now) > 0 && now[len(now)-1].id == w.id {
				later = append(later, w)
				continue
			}
			now = append(now, w)
		}
		s.settleRound(ctx, p, now, errs)
		open = later
	}
	results := make([]groupcommit.Result[struct{}], len(batch))
	for i, w := range batch {
		results[i].Err = errs[w.key()]
	}
	return results
}

// settlementKey is all that makes one write the repeat of another.
type settlementKey struct {
	id    records.ID
	fence records.Fence
	state records.State
}

func (w settlement) key() settlementKey { return settlementKey{w.id, w.fence, w.state} }

// settleRound writes to records, sorted and each once, and notes what became
// of each write.
func (s *Store) settleRound(ctx context.Context, p *pool, writes []settlement, errs map[settlementKey]error) {
	landed := s.write(ctx, p, writes, errs)
	var doubtful []settlement
	for _, w := range writes {
		if !landed[w.id] && errs[w.key()] == nil {
			doubtful = append(doubtful, w)
		}
	}
	if len(doubtful) > 0 {
		s.resolve(ctx, p, doubtful, errs)
	}
}

// resolve answers writes that changed nothing. One whose record stands as it
// would have left it, under the same fence, had landed before.
func (s *Store) resolve(ctx context.Context, p *pool, doubtful []settlement, errs map[settlementKey]error) {
	ids := newArray(oid.T_bytea, len(doubtful), 32)
	for _, w := range doubtful {
		ids.add(w.id[:])
	}
	var rows []settledRow
	err := p.batch(ctx, "settle", len(doubtful), func(ctx context.Context) error {
		return p.selects(ctx, &rows, settledMany, ids)
	})
	stands := make(map[records.ID]settledRow, len(rows))
	for _, row := range rows {
		stands[records.ID(row.ID)] = row
	}
	for _, w := range doubtful {
		if errs[w.key()] = err; err == nil && !stands[w.id].is(w) {
			errs[w.key()] = fmt.Errorf("%s: %w", verbOf(w.state), records.ErrFenced)
		}
	}
}

// settledRow is who wrote a record last, and how.
type settledRow struct {
	ID       []byte `db:"id"`
	State    string `db:"state"`
	Executor uuid   `db:"executor_id"`
	Epoch    int64  `db:"epoch"`
}

func (r settledRow) is(w settlement) bool {
	return r.State == string(w.state) && records.ExecutorID(r.Executor) == w.fence.Executor && r.Epoch == w.fence.Epoch
}

func verbOf(state records.State) string {
	switch state {
	case records.Finalized:
		return "finalize"
	case records.Released:
		return "release"
	case records.Unknown, records.InProgress:
	}
	return "mark unknown"
}

// write sends writes, sorted and each to a record of its own. It returns which
// landed, and notes the errors.
func (s *Store) write(ctx context.Context, p *pool, writes []settlement, errs map[settlementKey]error) map[records.ID]bool {
	landed := make(map[records.ID]bool, len(writes))
	if len(writes) > 1 {
		err := s.writeMany(ctx, p, writes, landed)
		if err == nil {
			return landed
		}
		if errors.Is(err, records.ErrUnavailable) && !isContended(err) {
			for _, w := range writes {
				errs[w.key()] = err
			}
			return landed
		}
	}
	for _, w := range writes {
		n, err := s.writeOne(ctx, p, w)
		errs[w.key()], landed[w.id] = err, n > 0
	}
	return landed
}

func (s *Store) writeOne(ctx context.Context, p *pool, w settlement) (int, error) {
	n := 0
	err := p.batch(ctx, "settle", 1, func(ctx context.Context) (err error) {
		n, err = p.executes(ctx, settleOne, settleArguments(w)...)
		return err
	})
	return n, err
}

// settleArguments are those of settleOne.
func settleArguments(w settlement) []any {
	return []any{
		w.id[:], w.fence.Executor.String(), w.fence.Epoch, string(w.state),
		w.status(), w.headers, w.body(), w.retention.Microseconds(),
	}
}

func (s *Store) writeMany(ctx context.Context, p *pool, writes []settlement, landed map[records.ID]bool) error {
	n := len(writes)
	ids, executors := newArray(oid.T_bytea, n, 32), newArray(oid.T_uuid, n, 16)
	epochs, states := newArray(oid.T_int8, n, 8), newArray(oid.T_text, n, 12)
	statuses, headers := newArray(oid.T_int2, n, 2), newArray(oid.T_bytea, n, 64)
	bodies, retentions := newArray(oid.T_bytea, n, 256), newArray(oid.T_int8, n, 8)
	for _, w := range writes {
		ids.add(w.id[:])
		executors.add(w.fence.Executor[:])
		epochs.addInt(w.fence.Epoch)
		states.addString(string(w.state))
		if w.response == nil {
			statuses.addNull()
		} else {
			statuses.addSmall(w.response.Status)
		}
		headers.addNullable(w.headers)
		bodies.addNullable(w.body())
		retentions.addInt(w.retention.Microseconds())
	}
	rows := make([][]byte, 0, n)
	err := p.batch(ctx, "settle", n, func(ctx context.Context) error {
		return p.selects(ctx, &rows, settleMany, ids, executors, epochs, states, statuses, headers, bodies, retentions)
	})
	for _, id := range rows {
		landed[records.ID(id)] = true
	}
	return err
}
