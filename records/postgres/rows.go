package postgres

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/probate-dev/probate/records"
)

// uuid is an executor's id as an argument and as a column, where it may be
// null: then it is the zero id.
type uuid records.ExecutorID

// Scan implements sql.Scanner.
func (u *uuid) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*u = uuid{}
		return nil
	case []byte:
		id, err := records.ParseExecutorID(string(v))
		*u = uuid(id)
		return err
	case string:
		id, err := records.ParseExecutorID(v)
		*u = uuid(id)
		return err
	}
	return fmt.Errorf("scan uuid: %T: %w", src, records.ErrCorrupt)
}

// recordRow is a record as it is read. Any column may be null, because the row
// may be missing on the far side of a join.
type recordRow struct {
	ID          []byte         `db:"id"`
	Realm       []byte         `db:"realm"`
	Key         []byte         `db:"key"`
	Operation   []byte         `db:"operation"`
	Resource    []byte         `db:"resource"`
	Fingerprint []byte         `db:"fingerprint"`
	State       sql.NullString `db:"state"`
	Executor    uuid           `db:"executor_id"`
	ExecutorURL sql.NullString `db:"executor_url"`
	Epoch       sql.NullInt64  `db:"epoch"`
	Attempt     []byte         `db:"attempt"`
	Takeovers   sql.NullInt64  `db:"takeovers"`
	Request     []byte         `db:"request"`
	Status      sql.NullInt64  `db:"status"`
	Headers     []byte         `db:"headers"`
	Body        []byte         `db:"body"`
	CreatedAt   sql.NullTime   `db:"created_at"`
	FinalizedAt sql.NullTime   `db:"finalized_at"`
	ExpiresAt   sql.NullTime   `db:"expires_at"`
}

// targets are where recordColumns go, in their order.
func (r *recordRow) targets() []any {
	return []any{
		&r.ID, &r.Realm, &r.Key, &r.Operation, &r.Resource, &r.Fingerprint,
		&r.State, &r.Executor, &r.ExecutorURL, &r.Epoch, &r.Attempt, &r.Takeovers,
		&r.Request, &r.Status, &r.Headers, &r.Body,
		&r.CreatedAt, &r.FinalizedAt, &r.ExpiresAt,
	}
}

func (r recordRow) found() bool { return r.ID != nil }

// record checks what the columns' types cannot and returns the record.
func (r recordRow) record() (records.Record, error) {
	rec := records.Record{
		Realm: string(r.Realm), Key: string(r.Key), Operation: string(r.Operation), Resource: string(r.Resource),
		State: records.State(r.State.String), Executor: records.ExecutorID(r.Executor), ExecutorURL: r.ExecutorURL.String,
		Epoch: r.Epoch.Int64, Takeovers: int(r.Takeovers.Int64), Request: r.Request,
		CreatedAt: utc(r.CreatedAt), FinalizedAt: utc(r.FinalizedAt), ExpiresAt: utc(r.ExpiresAt),
	}
	if !fill(rec.ID[:], r.ID) || !fill(rec.Fingerprint[:], r.Fingerprint) || !fill(rec.Attempt[:], r.Attempt) || !rec.State.Valid() {
		return records.Record{}, fmt.Errorf("read record %x: %w", r.ID, records.ErrCorrupt)
	}
	if rec.State == records.Finalized {
		headers, err := records.ParseHeaders(r.Headers)
		if err != nil {
			return records.Record{}, fmt.Errorf("read record %s: %w", rec.ID, err)
		}
		rec.Response = &records.Response{Status: int(r.Status.Int64), Headers: headers, Body: r.Body}
	}
	return rec, nil
}

// executorRow is an executor as it is read.
type executorRow struct {
	ID           uuid           `db:"e_id"`
	Slot         sql.NullString `db:"e_slot"`
	URL          sql.NullString `db:"e_url"`
	PublicKey    []byte         `db:"e_public_key"`
	Policy       sql.NullString `db:"e_policy"`
	State        sql.NullString `db:"e_state"`
	Beat         sql.NullInt64  `db:"e_beat"`
	HeartbeatAt  sql.NullTime   `db:"e_heartbeat_at"`
	HeartbeatAge sql.NullInt64  `db:"e_heartbeat_age"`
	LeaseTTL     sql.NullInt64  `db:"e_lease_ttl"`
	LeaseSince   sql.NullTime   `db:"e_lease_since"`
	AttestedAt   sql.NullTime   `db:"e_attested_at"`
	AttestedAge  sql.NullInt64  `db:"e_attested_age"`
	FencedAt     sql.NullTime   `db:"e_fenced_at"`
	FencedBy     uuid           `db:"e_fenced_by"`
	FencedReason sql.NullString `db:"e_fenced_reason"`
	Erasures     int64          `db:"e_erasures"` // of a heartbeat alone
}

// targets are where executorColumns go, in their order.
func (r *executorRow) targets() []any {
	return []any{
		&r.ID, &r.Slot, &r.URL, &r.PublicKey,
		&r.Policy, &r.State, &r.Beat, &r.HeartbeatAt, &r.HeartbeatAge, &r.LeaseTTL, &r.LeaseSince,
		&r.AttestedAt, &r.AttestedAge, &r.FencedAt, &r.FencedBy, &r.FencedReason,
	}
}

// executor is the zero Executor if the row is missing.
func (r executorRow) executor() records.Executor {
	return records.Executor{
		ID: records.ExecutorID(r.ID), Slot: r.Slot.String, URL: r.URL.String, PublicKey: r.PublicKey,
		Policy: records.Policy(r.Policy.String), State: records.ExecutorState(r.State.String),
		Beat: r.Beat.Int64, HeartbeatAt: utc(r.HeartbeatAt), HeartbeatAge: microseconds(r.HeartbeatAge),
		LeaseTTL: microseconds(r.LeaseTTL), LeaseSince: utc(r.LeaseSince),
		AttestedAt: utc(r.AttestedAt), AttestedAge: microseconds(r.AttestedAge),
		FencedAt: utc(r.FencedAt), FencedBy: records.ExecutorID(r.FencedBy), FencedReason: r.FencedReason.String,
		Erasures: r.Erasures,
	}
}

// heldRow is what loadMany returns for each id it was asked.
type heldRow struct {
	Asked      int
	AskerState sql.NullString
	Claimable  bool
	recordRow
	executorRow
}

func (r *heldRow) targets() []any {
	return slices.Concat([]any{&r.Asked, &r.AskerState, &r.Claimable}, r.recordRow.targets(), r.executorRow.targets())
}

func (r heldRow) held() (records.Held, error) {
	rec, err := r.record()
	return records.Held{Record: rec, Executor: r.executor()}, err
}

func (r heldRow) askerActive() bool { return r.AskerState.String == string(records.Active) }

// fill copies src if it is exactly as long as dst.
func fill(dst, src []byte) bool { return copy(dst, src) == len(dst) && len(src) == len(dst) }

func utc(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func microseconds(n sql.NullInt64) time.Duration { return time.Duration(n.Int64) * time.Microsecond }
