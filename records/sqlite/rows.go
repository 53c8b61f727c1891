package sqlite

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

type fleetRow struct {
	Cluster   string `db:"cluster"`
	Schema    int    `db:"schema"`
	MinBinary int    `db:"min_binary"`
}

// recordRow is a record as the file keeps it. A listing leaves some columns out.
type recordRow struct {
	ID          []byte        `db:"id"`
	State       string        `db:"state"`
	ExecutorID  []byte        `db:"executor_id"`
	ExecutorURL string        `db:"executor_url"`
	Epoch       int64         `db:"epoch"`
	Attempt     []byte        `db:"attempt"`
	Takeovers   int           `db:"takeovers"`
	CreatedAt   int64         `db:"created_at"`
	FinalizedAt sql.NullInt64 `db:"finalized_at"`
	ExpiresAt   sql.NullInt64 `db:"expires_at"`
	Status      sql.NullInt64 `db:"status"`
	Fingerprint []byte        `db:"fingerprint"`
	Realm       []byte        `db:"realm"`
	Key         []byte        `db:"key"`
	Operation   []byte        `db:"operation"`
	Resource    []byte        `db:"resource"`
	Headers     []byte        `db:"headers"`
	Request     []byte        `db:"request"`
	Body        []byte        `db:"body"`
}

func (w *recordRow) record() (records.Record, error) {
	r := records.Record{
		Realm:       string(w.Realm),
		Key:         string(w.Key),
		Operation:   string(w.Operation),
		Resource:    string(w.Resource),
		State:       records.State(w.State),
		ExecutorURL: w.ExecutorURL,
		Epoch:       w.Epoch,
		Takeovers:   w.Takeovers,
		Request:     w.Request,
		CreatedAt:   instant(w.CreatedAt),
		FinalizedAt: instantOrZero(w.FinalizedAt),
		ExpiresAt:   instantOrZero(w.ExpiresAt),
	}
	if !r.State.Valid() ||
		!fill(r.ID[:], w.ID) || !fill(r.Executor[:], w.ExecutorID) ||
		!fill(r.Attempt[:], w.Attempt) || !fill(r.Fingerprint[:], w.Fingerprint) {
		return records.Record{}, fmt.Errorf("read record %x: %w", w.ID, records.ErrCorrupt)
	}
	if r.State == records.Finalized && w.Status.Valid {
		headers, err := records.ParseHeaders(w.Headers)
		if err != nil {
			return records.Record{}, fmt.Errorf("read record %s: %w", r.ID, err)
		}
		r.Response = &records.Response{Status: int(w.Status.Int64), Headers: headers, Body: w.Body}
	}
	return r, nil
}

func toRecords(rows []recordRow) ([]records.Record, error) {
	all := make([]records.Record, len(rows))
	for i := range rows {
		r, err := rows[i].record()
		if err != nil {
			return nil, err
		}
		all[i] = r
	}
	return all, nil
}

// executorRow is an executor as the file keeps it. All columns are null where
// a record's executor was purged.
type executorRow struct {
	ID           []byte         `db:"id"`
	Slot         sql.NullString `db:"slot"`
	URL          sql.NullString `db:"url"`
	PublicKey    []byte         `db:"public_key"`
	Policy       sql.NullString `db:"policy"`
	State        sql.NullString `db:"state"`
	Beat         sql.NullInt64  `db:"beat"`
	HeartbeatAt  sql.NullInt64  `db:"heartbeat_at"`
	LeaseTTL     sql.NullInt64  `db:"lease_ttl"`
	LeaseSince   sql.NullInt64  `db:"lease_since"`
	AttestedAt   sql.NullInt64  `db:"attested_at"`
	FencedAt     sql.NullInt64  `db:"fenced_at"`
	FencedBy     []byte         `db:"fenced_by"`
	FencedReason sql.NullString `db:"fenced_reason"`
	Erasures     int64          `db:"erasures"` // of a heartbeat alone
}

// executor converts the row; now is the clock it was read at.
func (w *executorRow) executor(now int64) (records.Executor, error) {
	if w.ID == nil {
		return records.Executor{}, nil
	}
	e := records.Executor{
		Slot:         w.Slot.String,
		URL:          w.URL.String,
		PublicKey:    w.PublicKey,
		Policy:       records.Policy(w.Policy.String),
		State:        records.ExecutorState(w.State.String),
		Beat:         w.Beat.Int64,
		HeartbeatAt:  instant(w.HeartbeatAt.Int64),
		HeartbeatAge: age(now, w.HeartbeatAt.Int64),
		LeaseTTL:     time.Duration(w.LeaseTTL.Int64) * time.Microsecond,
		LeaseSince:   instant(w.LeaseSince.Int64),
		AttestedAt:   instantOrZero(w.AttestedAt),
		FencedAt:     instantOrZero(w.FencedAt),
		FencedReason: w.FencedReason.String,
		Erasures:     w.Erasures,
	}
	if w.AttestedAt.Valid {
		e.AttestedAge = age(now, w.AttestedAt.Int64)
	}
	if !e.State.Valid() || !fill(e.ID[:], w.ID) || w.FencedBy != nil && !fill(e.FencedBy[:], w.FencedBy) {
		return records.Executor{}, fmt.Errorf("read executor %x: %w", w.ID, records.ErrCorrupt)
	}
	return e, nil
}

// heldRow is a record with its executor.
type heldRow struct {
	recordRow
	Executor executorRow `db:"executor"`
}

func (w *heldRow) held(now int64) (records.Held, error) {
	r, err := w.record()
	if err != nil {
		return records.Held{}, err
	}
	e, err := w.Executor.executor(now)
	return records.Held{Record: r, Executor: e}, err
}

// fill copies b into dst if it has exactly its length.
func fill(dst, b []byte) bool { return copy(dst, b) == len(dst) && len(b) == len(dst) }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

func instantOrZero(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return instant(us.Int64)
}

func age(now, then int64) time.Duration { return time.Duration(now-then) * time.Microsecond }
