package api

import (
	"time"

	"github.com/probate-dev/probate/records"
)

// RecordView is a record as operators see it: everything but bodies.
type RecordView struct {
	Record      string     `json:"record"`
	State       string     `json:"state"`
	Operation   string     `json:"operation"`
	Resource    string     `json:"resource"`
	Realm       string     `json:"realm"`
	Key         string     `json:"key"`
	Executor    string     `json:"executor"`
	ExecutorURL string     `json:"executor_url"`
	Epoch       int64      `json:"epoch"`
	Takeovers   int        `json:"takeovers"`
	Status      int        `json:"status,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	FinalizedAt *time.Time `json:"finalized_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// viewRecord is what operators see of a record.
func viewRecord(r records.Record) RecordView {
	v := RecordView{
		Record: r.ID.String(), State: string(r.State), Operation: r.Operation, Resource: r.Resource, Realm: r.Realm, Key: r.Key,
		Executor: r.Executor.String(), ExecutorURL: r.ExecutorURL, Epoch: r.Epoch, Takeovers: r.Takeovers, CreatedAt: r.CreatedAt.UTC(),
		FinalizedAt: instant(r.FinalizedAt), ExpiresAt: instant(r.ExpiresAt),
	}
	if r.Response != nil {
		v.Status = r.Response.Status
	}
	return v
}

// ExecutorView is an executor as operators see it.
type ExecutorView struct {
	Executor     string     `json:"executor"`
	Slot         string     `json:"slot"`
	State        string     `json:"state"`
	URL          string     `json:"url"`
	Policy       string     `json:"policy"`
	Beat         int64      `json:"beat"`
	HeartbeatMS  int64      `json:"heartbeat_age_ms"`
	LeaseTTLMS   int64      `json:"lease_ttl_ms"`
	Stale        bool       `json:"stale"`
	AttestedAt   *time.Time `json:"attested_at,omitempty"`
	FencedAt     *time.Time `json:"fenced_at,omitempty"`
	FencedBy     string     `json:"fenced_by,omitempty"`
	FencedReason string     `json:"fenced_reason,omitempty"`
}

// ViewExecutor is what operators see of an executor.
func ViewExecutor(x records.Executor) ExecutorView {
	v := ExecutorView{
		Executor: x.ID.String(), Slot: x.Slot, State: string(x.State), URL: x.URL, Policy: string(x.Policy), Beat: x.Beat,
		HeartbeatMS: x.HeartbeatAge.Milliseconds(), LeaseTTLMS: x.LeaseTTL.Milliseconds(), Stale: x.Stale(),
		AttestedAt: instant(x.AttestedAt), FencedAt: instant(x.FencedAt), FencedReason: x.FencedReason,
	}
	switch {
	case x.State != records.Fenced:
	case x.FencedBy == records.ExecutorID{}:
		v.FencedBy = "operator"
	default:
		v.FencedBy = x.FencedBy.String()
	}
	return v
}

// EventView is a line of the audit as operators see it.
type EventView struct {
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Record   string    `json:"record,omitempty"`
	Epoch    int64     `json:"epoch,omitempty"`
	Executor string    `json:"executor,omitempty"`
	Actor    string    `json:"actor,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Before   string    `json:"before,omitempty"`
	After    string    `json:"after,omitempty"`
}

// viewEvent is what operators see of an event.
func viewEvent(e records.Event) EventView {
	v := EventView{
		At: e.At.UTC(), Kind: string(e.Kind), Epoch: e.Epoch, Actor: e.Actor, Reason: e.Reason, Before: e.Before, After: e.After,
	}
	if e.Record != (records.ID{}) {
		v.Record = e.Record.String()
	}
	if e.Executor != (records.ExecutorID{}) {
		v.Executor = e.Executor.String()
	}
	return v
}

// views is a view of each; an empty list, not null, of none.
func views[T, V any](all []T, view func(T) V) []V {
	list := make([]V, len(all))
	for i, x := range all {
		list[i] = view(x)
	}
	return list
}

// instant is a time, or nil if it has none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
