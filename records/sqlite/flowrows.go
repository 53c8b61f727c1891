package sqlite

import (
	"database/sql"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// flowRow is a flow as the file keeps it, with what loadFlow adds. A listing
// leaves some columns out.
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
	Executor    []byte         `db:"executor_id"`
	Epoch       int64          `db:"epoch"`
	Bytes       int64          `db:"bytes"`
	Total       int64          `db:"total"`
	SHA256      []byte         `db:"sha256"`
	CreatedAt   int64          `db:"created_at"`
	UpdatedAt   int64          `db:"updated_at"`
	EndedAt     sql.NullInt64  `db:"ended_at"`
	Message     []byte         `db:"message"`
	Tokens      []byte         `db:"tokens"`
	Checkpoint  []byte         `db:"checkpoint"`
	RecordState sql.NullString `db:"r_state"`
	RecordBy    []byte         `db:"r_executor_id"`
	RecordEpoch sql.NullInt64  `db:"r_epoch"`
	RecordURL   sql.NullString `db:"r_executor_url"`
	callbackRow
}

func (w *flowRow) flow() (records.Flow, error) {
	f := records.Flow{
		ID: w.ID, Moves: w.Moves, State: records.FlowState(w.State), Version: w.Version,
		Wanted: records.FlowState(w.Wanted), WantedBy: records.FlowAsker(w.WantedBy), Reason: w.Reason, Profile: w.Profile, Dataset: w.Dataset,
		Message: w.Message, ReplyTo: w.ReplyTo, Tokens: w.Tokens, Attempts: w.Attempts, Epoch: w.Epoch,
		Progress:  records.Progress{Bytes: w.Bytes, Total: w.Total, SHA256: w.SHA256, Checkpoint: w.Checkpoint},
		CreatedAt: instant(w.CreatedAt), UpdatedAt: instant(w.UpdatedAt), EndedAt: instantOrZero(w.EndedAt),
	}
	if !fill(f.Record[:], w.Record) || !fill(f.Fingerprint[:], w.Fingerprint) || !fill(f.Attempt[:], w.Attempt) ||
		!f.State.Valid() || w.Executor != nil && !fill(f.Executor[:], w.Executor) {
		return records.Flow{}, fmt.Errorf("read flow %q: %w", w.ID, records.ErrCorrupt)
	}
	return f, nil
}

func (w *flowRow) held() (records.HeldFlow, error) {
	f, err := w.flow()
	h := records.HeldFlow{
		Flow: f, State: records.State(w.RecordState.String), URL: w.RecordURL.String,
		Fence: records.Fence{Epoch: w.RecordEpoch.Int64}, Callback: w.callback(),
	}
	if err == nil && w.RecordBy != nil && !fill(h.Fence.Executor[:], w.RecordBy) {
		return records.HeldFlow{}, fmt.Errorf("read record of flow %q: %w", w.ID, records.ErrCorrupt)
	}
	return h, err
}

// callbackRow is a callback as the file keeps it, or nulls.
type callbackRow struct {
	Flow    sql.NullString `db:"c_flow_id"`
	Version sql.NullInt64  `db:"c_version"`
	Event   sql.NullString `db:"c_event"`
	URL     sql.NullString `db:"c_url"`
	Body    []byte         `db:"c_body"`
	Tries   sql.NullInt64  `db:"c_tries"`
	Reason  sql.NullString `db:"c_reason"`
	Created sql.NullInt64  `db:"c_created_at"`
}

// callback is nil for nulls.
func (w *callbackRow) callback() *records.Callback {
	if !w.Flow.Valid {
		return nil
	}
	return &records.Callback{
		Flow: w.Flow.String, Version: w.Version.Int64,
		NewCallback: records.NewCallback{Event: w.Event.String, URL: w.URL.String, Body: w.Body},
		Tries:       int(w.Tries.Int64), Reason: w.Reason.String, CreatedAt: instantOrZero(w.Created),
	}
}
