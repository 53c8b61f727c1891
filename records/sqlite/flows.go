package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/probate-dev/probate/records"
)

var _ records.Flows = (*Store)(nil)

// CreateFlow implements [records.Flows].
func (s *Store) CreateFlow(ctx context.Context, f records.NewFlow) (records.Flow, bool, error) {
	if err := f.Validate(); err != nil {
		return records.Flow{}, false, fmt.Errorf("create flow: %w", err)
	}
	type created struct {
		flow  records.Flow
		fresh bool
	}
	made, err := decide(ctx, s, "create flow", len(f.Message), func(t *tx) (created, error) {
		now := t.now()
		n := t.exec(createFlow, now, f.ID, f.Record[:], f.Fingerprint[:], f.Moves, string(f.State), f.Attempt[:],
			f.Profile, f.Dataset, present(f.Message), f.ReplyTo, present(f.Tokens))
		if n == 1 {
			t.tell(now, f.ID, f.Callback)
		}
		held, err := t.flow(f.ID)
		return created{held.Flow, held.Flow.Attempt == f.Attempt}, err
	})
	return made.flow, made.fresh, err
}

// tell puts a message about the flow's last move into the outbox, if there is
// one.
func (t *tx) tell(now int64, id string, c *records.NewCallback) {
	if c != nil {
		t.exec(addCallback, now, id, c.Event, c.URL, present(c.Body))
	}
}

// flow reads a flow inside the transaction.
func (t *tx) flow(id string) (records.HeldFlow, error) {
	var row flowRow
	if !t.one(&row, loadFlow, id) {
		return records.HeldFlow{}, records.ErrNotFound
	}
	return row.held()
}

// LoadFlow implements [records.Flows].
func (s *Store) LoadFlow(ctx context.Context, id string) (records.HeldFlow, error) {
	row, err := readOne[flowRow](ctx, s, "load flow", loadFlow, id)
	if err != nil {
		return records.HeldFlow{}, err
	}
	return row.held()
}

// MoveFlow implements [records.Flows].
func (s *Store) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if err := m.Validate(); err != nil {
		return records.Flow{}, fmt.Errorf("move flow: %w", err)
	}
	return decide(ctx, s, "move flow", len(m.Message), func(t *tx) (records.Flow, error) {
		now := t.now()
		if t.mayMove(m) && t.exec(moveFlow, moveArguments(now, m)...) == 1 {
			t.tell(now, m.ID, m.Callback)
		}
		held, err := t.flow(m.ID)
		if errors.Is(err, records.ErrNotFound) || err == nil && held.Flow.Attempt != m.Attempt {
			return records.Flow{}, records.ErrFenced
		}
		return held.Flow, err
	})
}

// mayMove reports whether the mover has the flow's record, or nobody has.
func (t *tx) mayMove(m records.FlowMove) bool {
	var found int
	if m.Fence == (records.Fence{}) {
		return !t.one(&found, busyRecord, m.ID)
	}
	return t.one(&found, heldRecord, m.ID, m.Fence.Executor[:], m.Fence.Epoch)
}

func moveArguments(now int64, m records.FlowMove) []any {
	from := records.FlowsInto(m.To)
	if m.Begin {
		from = slices.DeleteFunc(from, func(s records.FlowState) bool { return !s.Running() })
	}
	list, err := json.Marshal(from)
	if err != nil {
		panic(err) // strings are always marshalled
	}
	args := []any{
		now, m.ID, string(m.To), string(list), nil, m.Attempt[:], records.FlowReason(m.Reason), m.Begin,
		m.Fence.Executor[:], m.Fence.Epoch, m.Message, nil, m.Tokens, nil, nil, nil, nil, m.Moves,
	}
	if m.Fence == (records.Fence{}) {
		args[4] = m.Version
	}
	if m.ReplyTo != "" {
		args[11] = m.ReplyTo
	}
	if p := m.Progress; p != nil {
		args[13], args[14], args[15], args[16] = p.Bytes, p.Total, p.SHA256, p.Checkpoint
	}
	return args
}

// WantFlow implements [records.Flows].
func (s *Store) WantFlow(ctx context.Context, id string, w records.FlowWish) (records.Flow, error) {
	return decide(ctx, s, "want flow", 0, func(t *tx) (records.Flow, error) {
		if t.exec(wantFlow, t.now(), id, string(w.State), records.FlowReason(w.Reason), string(w.By)) == 0 {
			return records.Flow{}, records.ErrFenced
		}
		held, err := t.flow(id)
		return held.Flow, err
	})
}

// NoteProgress implements [records.Flows].
func (s *Store) NoteProgress(ctx context.Context, notes []records.FlowNote) ([]records.FlowNoted, error) {
	weight := 0
	for _, n := range notes {
		if err := n.Validate(); err != nil {
			return nil, fmt.Errorf("note progress: %w", err)
		}
		weight += len(n.Progress.Checkpoint)
	}
	return decide(ctx, s, "note progress", weight, func(t *tx) ([]records.FlowNoted, error) {
		noted := make([]records.FlowNoted, len(notes))
		for i, n := range notes {
			var found int
			var wanted string
			held := t.one(&found, heldRecord, n.ID, n.Fence.Executor[:], n.Fence.Epoch) &&
				t.one(&wanted, noteFlow, t.now(), n.ID, n.Progress.Bytes, n.Progress.Total, n.Progress.Checkpoint)
			noted[i] = records.FlowNoted{Fenced: !held, Wanted: records.FlowState(wanted)}
		}
		return noted, nil
	})
}

// HoldsFlow implements [records.Flows].
func (s *Store) HoldsFlow(ctx context.Context, id string, f records.Fence) error {
	_, err := readOne[int](ctx, s, "hold flow", holdsFlow, id, f.Executor[:], f.Epoch)
	if errors.Is(err, records.ErrNotFound) {
		return fmt.Errorf("hold flow: %w", records.ErrFenced)
	}
	return err
}

// StrayFlows implements [records.Flows].
func (s *Store) StrayFlows(ctx context.Context, idle time.Duration, after string, limit int) ([]records.Flow, error) {
	now := s.config.Clock().UnixMicro()
	return s.someFlows(ctx, "stray flows", strayFlows, now, after, now-micros(idle), max(limit, 0))
}

// ListFlows implements [records.Flows].
func (s *Store) ListFlows(ctx context.Context, f records.FlowFilter) (records.FlowPage, error) {
	if err := f.Validate(); err != nil {
		return records.FlowPage{}, fmt.Errorf("list flows: %w", err)
	}
	var state any
	if f.State != "" {
		state = string(f.State)
	}
	found, err := s.someFlows(ctx, "list flows", listFlows, f.After, state, f.Limit+1)
	if err != nil {
		return records.FlowPage{}, err
	}
	page := records.FlowPage{Flows: found}
	if len(found) > f.Limit {
		page = records.FlowPage{Flows: found[:f.Limit], Next: found[f.Limit-1].ID, More: true}
	}
	return page, nil
}

func (s *Store) someFlows(ctx context.Context, op, text string, args ...any) ([]records.Flow, error) {
	rows, err := readAll[flowRow](ctx, s, op, text, args...)
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
}

// PurgeFlows implements [records.Flows].
func (s *Store) PurgeFlows(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := decide(ctx, s, "purge flows", 0, func(t *tx) (int64, error) {
		return t.exec(purgeFlows, t.now()-micros(age), max(limit, 0)), nil
	})
	return int(n), err
}

// DueCallbacks implements [records.Flows].
func (s *Store) DueCallbacks(ctx context.Context, patience time.Duration, limit int) ([]records.Callback, error) {
	return decide(ctx, s, "due callbacks", 0, func(t *tx) ([]records.Callback, error) {
		now := t.now()
		var rows []callbackRow
		t.all(&rows, dueCallbacks, now, max(limit, 0))
		due := make([]records.Callback, 0, len(rows))
		for _, row := range rows {
			c := *row.callback()
			t.exec(takeCallback, c.Flow, c.Version, now+micros(patience))
			c.Tries++
			due = append(due, c)
		}
		return due, nil
	})
}

// WaitingCallbacks implements [records.Flows].
func (s *Store) WaitingCallbacks(ctx context.Context, most int) (int, error) {
	rows, err := readAll[struct {
		N int `db:"n"`
	}](ctx, s, "waiting callbacks", waitingCallbacks, max(most, 0))
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return rows[0].N, nil
}

// all reads all rows into dest, a pointer to a slice.
func (t *tx) all(dest any, text string, args ...any) {
	if t.broken == nil {
		t.broken = t.stmts[text].SelectContext(t.ctx, dest, args...)
	}
}

// CallbackDone implements [records.Flows].
func (s *Store) CallbackDone(ctx context.Context, flow string, version int64) error {
	return s.write(ctx, "callback done", func(t *tx) error {
		t.exec(callbackDone, flow, version)
		return nil
	})
}

// CallbackFailed implements [records.Flows].
func (s *Store) CallbackFailed(ctx context.Context, flow string, version int64, after time.Duration, reason string) error {
	return s.write(ctx, "callback failed", func(t *tx) error {
		t.exec(callbackFailed, flow, version, t.now()+micros(after), records.FlowReason(reason))
		return nil
	})
}

// present is b, and not null.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
