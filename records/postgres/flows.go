package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

var _ records.Flows = (*Store)(nil)

// CreateFlow adds a flow, unless one of its id stands there.
func (s *Store) CreateFlow(ctx context.Context, f records.NewFlow) (records.Flow, bool, error) {
	if err := f.Validate(); err != nil {
		return records.Flow{}, false, err
	}
	args := []any{
		f.ID, f.Record[:], f.Fingerprint[:], f.Moves, string(f.State), f.Attempt[:], f.Profile, f.Dataset,
		present(f.Message), f.ReplyTo, present(f.Tokens),
	}
	args = append(args, callbackArguments(f.Callback)...)
	type created struct {
		flow  records.Flow
		fresh bool
	}
	made, err := call(ctx, s, func(ctx context.Context) (created, error) {
		for range 2 {
			rows, err := s.flows(ctx, "create flow", createFlow, args...)
			if err != nil {
				return created{}, err
			}
			if len(rows) > 0 {
				flow, err := rows[0].flow()
				return created{flow, true}, err
			}
			held, err := s.loadFlow(ctx, f.ID)
			if err == nil {
				return created{held.Flow, held.Flow.Attempt == f.Attempt}, nil
			} else if !errors.Is(err, records.ErrNotFound) {
				return created{}, err
			}
		}
		return created{}, fmt.Errorf("create flow: %w: it comes and goes", records.ErrUnavailable)
	})
	return made.flow, made.fresh, err
}

// LoadFlow reads a flow, and who has the record of its bytes.
func (s *Store) LoadFlow(ctx context.Context, id string) (records.HeldFlow, error) {
	if !records.ValidFlowID(id) {
		return records.HeldFlow{}, fmt.Errorf("load flow: %w", records.ErrNotFound)
	}
	return call(ctx, s, func(ctx context.Context) (records.HeldFlow, error) { return s.loadFlow(ctx, id) })
}

func (s *Store) loadFlow(ctx context.Context, id string) (records.HeldFlow, error) {
	rows, err := s.flows(ctx, "load flow", loadFlow, id)
	if err != nil {
		return records.HeldFlow{}, err
	}
	if len(rows) == 0 {
		return records.HeldFlow{}, fmt.Errorf("load flow: %w", records.ErrNotFound)
	}
	return rows[0].held()
}

// MoveFlow brings a flow into another state, under its fence or its version.
func (s *Store) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if err := m.Validate(); err != nil {
		return records.Flow{}, err
	}
	text, args := moveArguments(m)
	return call(ctx, s, func(ctx context.Context) (records.Flow, error) {
		rows, err := s.flows(ctx, "move flow", text, args...)
		if err != nil {
			return records.Flow{}, err
		}
		if len(rows) > 0 {
			return rows[0].flow()
		}
		held, err := s.loadFlow(ctx, m.ID)
		switch {
		case errors.Is(err, records.ErrNotFound):
			return records.Flow{}, fmt.Errorf("move flow: %w", records.ErrFenced)
		case err != nil:
			return records.Flow{}, err
		case held.Flow.Attempt == m.Attempt:
			return held.Flow, nil
		}
		return records.Flow{}, fmt.Errorf("move flow: %w", records.ErrFenced)
	})
}

// moveArguments choose the statement by whose move it is.
func moveArguments(m records.FlowMove) (text string, args []any) {
	from := records.FlowsInto(m.To)
	if m.Begin {
		from = slices.DeleteFunc(from, func(s records.FlowState) bool { return !s.Running() })
	}
	args = []any{
		m.ID, m.Fence.Executor.String(), m.Fence.Epoch, string(m.To), pq.Array(from), m.Attempt[:], records.FlowReason(m.Reason), m.Begin,
		m.Message, nullable(m.ReplyTo, m.ReplyTo != ""), m.Tokens, nil, nil, nil, nil,
	}
	if p := m.Progress; p != nil {
		args[11], args[12], args[13], args[14] = p.Bytes, p.Total, p.SHA256, p.Checkpoint
	}
	args = append(append(args, callbackArguments(m.Callback)...), m.Moves)
	if m.Fence == (records.Fence{}) {
		return moveIdleFlow, append(args, m.Version)
	}
	return moveHeldFlow, args
}

// callbackArguments are three nulls without a callback.
func callbackArguments(c *records.NewCallback) []any {
	if c == nil {
		return []any{nil, nil, nil}
	}
	return []any{c.Event, c.URL, present(c.Body)}
}

// WantFlow notes what is wanted of a running flow.
func (s *Store) WantFlow(ctx context.Context, id string, w records.FlowWish) (records.Flow, error) {
	return call(ctx, s, func(ctx context.Context) (records.Flow, error) {
		rows, err := s.flows(ctx, "want flow", wantFlow, id, string(w.State), records.FlowReason(w.Reason), string(w.By))
		switch {
		case err != nil:
			return records.Flow{}, err
		case len(rows) == 0:
			return records.Flow{}, fmt.Errorf("want flow: %w", records.ErrFenced)
		}
		return rows[0].flow()
	})
}

// NoteProgress writes how far flows have come, in one statement.
func (s *Store) NoteProgress(ctx context.Context, notes []records.FlowNote) ([]records.FlowNoted, error) {
	ids, executors := make([]string, len(notes)), make([]string, len(notes))
	epochs, bytes, totals := make([]int64, len(notes)), make([]int64, len(notes)), make([]int64, len(notes))
	checkpoints := make([][]byte, len(notes))
	noted := make([]records.FlowNoted, len(notes))
	for i, n := range notes {
		if err := n.Validate(); err != nil {
			return nil, err
		}
		ids[i], executors[i], epochs[i] = n.ID, n.Fence.Executor.String(), n.Fence.Epoch
		bytes[i], totals[i], checkpoints[i] = n.Progress.Bytes, n.Progress.Total, n.Progress.Checkpoint
		noted[i].Fenced = true
	}
	return call(ctx, s, func(ctx context.Context) ([]records.FlowNoted, error) {
		var rows []struct {
			N      int    `db:"n"`
			Wanted string `db:"wanted"`
		}
		err := s.data.attempt(ctx, "note flows", func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, noteFlows, pq.Array(ids), pq.Array(executors), pq.Array(epochs),
				pq.Array(bytes), pq.Array(totals), pq.ByteaArray(checkpoints))
		})
		for _, row := range rows {
			noted[row.N-1] = records.FlowNoted{Wanted: records.FlowState(row.Wanted)}
		}
		return noted, err
	})
}

// HoldsFlow demands that the fence holds the running flow, now.
func (s *Store) HoldsFlow(ctx context.Context, id string, f records.Fence) error {
	return do(ctx, s, func(ctx context.Context) error {
		var ids []string
		err := s.data.attempt(ctx, "hold flow", func(ctx context.Context) error {
			return s.data.selects(ctx, &ids, holdsFlow, id, f.Executor.String(), f.Epoch)
		})
		if err == nil && len(ids) == 0 {
			return fmt.Errorf("hold flow: %w", records.ErrFenced)
		}
		return err
	})
}

// StrayFlows reads running flows that no live executor has in progress.
func (s *Store) StrayFlows(ctx context.Context, idle time.Duration, after string, limit int) ([]records.Flow, error) {
	return s.someFlows(ctx, "stray flows", strayFlows, after, idle.Microseconds(), max(0, limit))
}

// ListFlows reads a page for an operator.
func (s *Store) ListFlows(ctx context.Context, f records.FlowFilter) (records.FlowPage, error) {
	if err := f.Validate(); err != nil {
		return records.FlowPage{}, err
	}
	found, err := s.someFlows(ctx, "list flows", listFlows, f.After, nullable(string(f.State), f.State != ""), f.Limit+1)
	if err != nil {
		return records.FlowPage{}, err
	}
	page := records.FlowPage{Flows: found}
	if len(found) > f.Limit {
		page = records.FlowPage{Flows: found[:f.Limit], Next: found[f.Limit-1].ID, More: true}
	}
	return page, nil
}

func (s *Store) someFlows(ctx context.Context, name, text string, args ...any) ([]records.Flow, error) {
	return call(ctx, s, func(ctx context.Context) ([]records.Flow, error) {
		var rows []flowRow
		err := s.data.attempt(ctx, name, func(ctx context.Context) error { return s.data.plans(ctx, &rows, text, args...) })
		if err != nil {
			return nil, err
		}
		found := make([]records.Flow, len(rows))
		for i, row := range rows {
			if found[i], err = row.flow(); err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

// PurgeFlows deletes flows that ended long ago.
func (s *Store) PurgeFlows(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.changesFlows(ctx, "purge flows", purgeFlows, age.Microseconds(), max(0, limit))
}

// DueCallbacks takes callbacks whose time has come.
func (s *Store) DueCallbacks(ctx context.Context, patience time.Duration, limit int) ([]records.Callback, error) {
	return call(ctx, s, func(ctx context.Context) ([]records.Callback, error) {
		var rows []callbackRow
		err := s.data.attempt(ctx, "due callbacks", func(ctx context.Context) error {
			return s.data.plans(ctx, &rows, dueCallbacks, patience.Microseconds(), max(0, limit))
		})
		due := make([]records.Callback, 0, len(rows))
		for _, row := range rows {
			due = append(due, *row.callback())
		}
		return due, err
	})
}

// WaitingCallbacks counts callbacks.
func (s *Store) WaitingCallbacks(ctx context.Context, most int) (int, error) {
	return call(ctx, s, func(ctx context.Context) (int, error) {
		var counts []int
		err := s.data.attempt(ctx, "waiting callbacks", func(ctx context.Context) error {
			return s.data.plans(ctx, &counts, waitingCallbacks, max(0, most))
		})
		if err != nil || len(counts) == 0 {
			return 0, err
		}
		return counts[0], nil
	})
}

// CallbackDone removes a callback.
func (s *Store) CallbackDone(ctx context.Context, flow string, version int64) error {
	_, err := s.changesFlows(ctx, "callback done", callbackDone, flow, version)
	return err
}

// CallbackFailed puts a callback off.
func (s *Store) CallbackFailed(ctx context.Context, flow string, version int64, after time.Duration, reason string) error {
	_, err := s.changesFlows(ctx, "callback failed", callbackFailed, flow, version, after.Microseconds(), records.FlowReason(reason))
	return err
}

func (s *Store) changesFlows(ctx context.Context, name, text string, args ...any) (int, error) {
	return call(ctx, s, func(ctx context.Context) (n int, err error) {
		err = s.data.attempt(ctx, name, func(ctx context.Context) (err error) {
			n, err = s.data.changes(ctx, text, args...)
			return err
		})
		return n, err
	})
}

func (s *Store) flows(ctx context.Context, name, text string, args ...any) ([]flowRow, error) {
	var rows []flowRow
	err := s.data.attempt(ctx, name, func(ctx context.Context) error { return s.data.selects(ctx, &rows, text, args...) })
	return rows, err
}

// present is b, and not null.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// flowRow is a flow as it is read, with what loadFlow adds.
type flowRow struct {
	ID          string         `db:"id"`
	Record      []byte         `db:"record_id"`
	Fingerprint []byte         `db:"fingerprint"`
	Moves       bool           `db:"moves"`
	State       string         `db:"state"`
	Version     int64          `db:"version"`
	Attempt     []byte         `db:"attempt"`
	Wanted      string         `db:"wanted"`
	WantedBy    string         `db:"wanted_by"`
	Reason      string         `db:"reason"`
	Profile     string         `db:"profile"`
	Dataset     string         `db:"dataset"`
	ReplyTo     string         `db:"reply_to"`
	Attempts    int            `db:"attempts"`
	Executor    uuid           `db:"executor_id"`
	Epoch       int64          `db:"epoch"`
	Bytes       int64          `db:"bytes"`
	Total       int64          `db:"total"`
	SHA256      []byte         `db:"sha256"`
	CreatedAt   sql.NullTime   `db:"created_at"`
	UpdatedAt   sql.NullTime   `db:"updated_at"`
	EndedAt     sql.NullTime   `db:"ended_at"`
	Message     []byte         `db:"message"`
	Tokens      []byte         `db:"tokens"`
	Checkpoint  []byte         `db:"checkpoint"`
	RecordState sql.NullString `db:"r_state"`
	RecordBy    uuid           `db:"r_executor_id"`
	RecordEpoch sql.NullInt64  `db:"r_epoch"`
	RecordURL   sql.NullString `db:"r_executor_url"`
	callbackRow
}

func (r flowRow) flow() (records.Flow, error) {
	f := records.Flow{
		ID: r.ID, Moves: r.Moves, State: records.FlowState(r.State), Version: r.Version,
		Wanted: records.FlowState(r.Wanted), WantedBy: records.FlowAsker(r.WantedBy), Reason: r.Reason, Profile: r.Profile, Dataset: r.Dataset,
		Message: r.Message, ReplyTo: r.ReplyTo, Tokens: r.Tokens, Attempts: r.Attempts,
		Executor: records.ExecutorID(r.Executor), Epoch: r.Epoch,
		Progress:  records.Progress{Bytes: r.Bytes, Total: r.Total, SHA256: r.SHA256, Checkpoint: r.Checkpoint},
		CreatedAt: utc(r.CreatedAt), UpdatedAt: utc(r.UpdatedAt), EndedAt: utc(r.EndedAt),
	}
	if !fill(f.Record[:], r.Record) || !fill(f.Fingerprint[:], r.Fingerprint) || !fill(f.Attempt[:], r.Attempt) || !f.State.Valid() {
		return records.Flow{}, fmt.Errorf("read flow %q: %w", r.ID, records.ErrCorrupt)
	}
	return f, nil
}

func (r flowRow) held() (records.HeldFlow, error) {
	f, err := r.flow()
	return records.HeldFlow{
		Flow: f, State: records.State(r.RecordState.String), URL: r.RecordURL.String,
		Fence:    records.Fence{Executor: records.ExecutorID(r.RecordBy), Epoch: r.RecordEpoch.Int64},
		Callback: r.callback(),
	}, err
}

// callbackRow is a callback as it is read, or nulls.
type callbackRow struct {
	Flow    sql.NullString `db:"c_flow_id"`
	Version sql.NullInt64  `db:"c_version"`
	Event   sql.NullString `db:"c_event"`
	URL     sql.NullString `db:"c_url"`
	Body    []byte         `db:"c_body"`
	Tries   sql.NullInt64  `db:"c_tries"`
	Reason  sql.NullString `db:"c_reason"`
	Created sql.NullTime   `db:"c_created_at"`
}

// callback is nil for nulls.
func (r callbackRow) callback() *records.Callback {
	if !r.Flow.Valid {
		return nil
	}
	return &records.Callback{
		Flow: r.Flow.String, Version: r.Version.Int64,
		NewCallback: records.NewCallback{Event: r.Event.String, URL: r.URL.String, Body: r.Body},
		Tries:       int(r.Tries.Int64), Reason: r.Reason.String, CreatedAt: utc(r.Created),
	}
}
