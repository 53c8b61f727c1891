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

// settleBatch writes the batch, each record once. A second write to a record
// of the same batch comes after: if it says the same it is a repeat, if not it
// is fenced, and either way it finds out from the row.
func (s *Store) settleBatch(batch []settlement) []groupcommit.Result[struct{}] {
	ctx := context.Background() // no caller's: the batch belongs to all of them
	results := make([]groupcommit.Result[struct{}], len(batch))
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return batch[a].id.Compare(batch[b].id) })
	first := slices.CompactFunc(slices.Clone(order), func(a, b int) bool { return batch[a].id == batch[b].id })

	errs := s.write(ctx, batch, first)
	var doubtful []int
	for _, i := range order {
		switch err, sent := errs[i]; {
		case !sent || errors.Is(err, errDoubt):
			doubtful = append(doubtful, i)
		default:
			results[i].Err = err
		}
	}
	s.resolve(ctx, batch, doubtful, results)
	return results
}

// resolve answers writes that may have changed nothing. One whose record stands
// as it would have left it, under the same fence, has landed, now or before.
func (s *Store) resolve(ctx context.Context, batch []settlement, doubtful []int, results []groupcommit.Result[struct{}]) {
	if len(doubtful) == 0 {
		return
	}
	ids := newArray(oid.T_bytea, len(doubtful), 32)
	for _, i := range doubtful {
		ids.add(batch[i].id[:])
	}
	var rows []settledRow
	err := s.data.attempt(ctx, "settle", len(doubtful), func(ctx context.Context) error {
		return s.data.selects(ctx, &rows, settledMany, ids)
	})
	stands := make(map[records.ID]settledRow, len(rows))
	for _, row := range rows {
		stands[records.ID(row.ID)] = row
	}
	for _, i := range doubtful {
		if results[i].Err = err; err == nil && !stands[batch[i].id].is(batch[i]) {
			results[i].Err = fmt.Errorf("%s: %w", verbOf(batch[i].state), records.ErrFenced)
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

// errDoubt: the write, or some write of its batch, changed nothing.
var errDoubt = errors.New("changed nothing")

// write sends the writes at the given places, sorted and each to a record of
// its own. It returns what became of each, by place.
func (s *Store) write(ctx context.Context, batch []settlement, at []int) map[int]error {
	errs := make(map[int]error, len(at))
	if len(at) > 1 {
		n, err := s.writeMany(ctx, batch, at)
		if err == nil && n < len(at) {
			err = errDoubt
		}
		if err == nil || errors.Is(err, errDoubt) || errors.Is(err, records.ErrUnavailable) && !isContended(err) {
			for _, i := range at {
				errs[i] = err
			}
			return errs
		}
	}
	for _, i := range at {
		n, err := s.writeOne(ctx, batch[i])
		if err == nil && n == 0 {
			err = errDoubt
		}
		errs[i] = err
	}
	return errs
}

func (s *Store) writeOne(ctx context.Context, w settlement) (int, error) {
	n := 0
	err := s.data.attempt(ctx, "settle", 1, func(ctx context.Context) (err error) {
		n, err = s.data.executes(ctx, settleOne, settleArguments(w)...)
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

func (s *Store) writeMany(ctx context.Context, batch []settlement, at []int) (int, error) {
	n := len(at)
	ids, executors := newArray(oid.T_bytea, n, 32), newArray(oid.T_uuid, n, 16)
	epochs, states := newArray(oid.T_int8, n, 8), newArray(oid.T_text, n, 12)
	statuses, headers := newArray(oid.T_int2, n, 2), newArray(oid.T_bytea, n, 64)
	bodies, retentions := newArray(oid.T_bytea, n, 256), newArray(oid.T_int8, n, 8)
	for _, i := range at {
		w := &batch[i]
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
	written := 0
	err := s.data.attempt(ctx, "settle", n, func(ctx context.Context) (err error) {
		written, err = s.data.executes(ctx, settleMany, ids, executors, epochs, states, statuses, headers, bodies, retentions)
		return err
	})
	return written, err
}
