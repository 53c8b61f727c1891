//go:build unix

package fleet

import (
	"database/sql"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// Sight looks into the store past the nodes.
type Sight struct{ DB *sql.DB }

// SightMark is in every statement of a Sight, so that it can be told from
// those of the nodes.
const SightMark = "/* sight */"

// Look opens a sight of a database.
func Look(t testing.TB, dsn string) Sight { return Sight{postgrestest.Open(t, dsn)} }

// Executors are all boots there ever were, oldest first: id, slot, URL, key,
// policy, state, beats, ages and what fenced them.
func (s Sight) Executors(t testing.TB) []records.Executor {
	t.Helper()
	rows, err := s.DB.QueryContext(t.Context(), `
SELECT `+SightMark+` id::text, slot, url, public_key, policy, state, beat, heartbeat_at, attested_at,
       (extract(epoch FROM clock_timestamp() - heartbeat_at) * 1000000)::bigint,
       fenced_at, coalesce(fenced_by::text, ''), coalesce(fenced_reason, '')
  FROM probate.executors ORDER BY registered_at`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []records.Executor
	for rows.Next() {
		var (
			e                records.Executor
			id, by           string
			attested, fenced sql.NullTime
			age              int64
		)
		err := rows.Scan(&id, &e.Slot, &e.URL, &e.PublicKey, &e.Policy, &e.State, &e.Beat, &e.HeartbeatAt, &attested, &age, &fenced, &by, &e.FencedReason)
		if err != nil {
			t.Fatal(err)
		}
		e.ID = executorID(t, id)
		e.AttestedAt, e.FencedAt, e.HeartbeatAge = attested.Time, fenced.Time, time.Duration(age)*time.Microsecond
		if by != "" {
			e.FencedBy = executorID(t, by)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func executorID(t testing.TB, text string) records.ExecutorID {
	t.Helper()
	id, err := records.ParseExecutorID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Executor is the newest boot of a slot.
func (s Sight) Executor(t testing.TB, slot string) records.Executor {
	t.Helper()
	var newest records.Executor
	for _, e := range s.Executors(t) {
		if e.Slot == slot {
			newest = e
		}
	}
	if newest.Slot == "" {
		t.Fatalf("no executor ever held slot %s", slot)
	}
	return newest
}

// Boot is one boot by its id.
func (s Sight) Boot(t testing.TB, id records.ExecutorID) records.Executor {
	t.Helper()
	for _, e := range s.Executors(t) {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("no executor %s", id)
	return records.Executor{}
}

// Fenced are the boots that were fenced.
func (s Sight) Fenced(t testing.TB) []records.Executor {
	t.Helper()
	var fenced []records.Executor
	for _, e := range s.Executors(t) {
		if e.State == records.Fenced {
			fenced = append(fenced, e)
		}
	}
	return fenced
}

// Record is the record of a key: its state, holder, epoch, take-overs and the
// body of its response.
func (s Sight) Record(t testing.TB, key string) records.Record {
	t.Helper()
	r := records.Record{ID: IDOf(key), Key: key}
	var (
		holder string
		body   []byte
	)
	err := s.DB.QueryRowContext(t.Context(), `
SELECT `+SightMark+` state, executor_id::text, epoch, takeovers, body
  FROM probate.records WHERE id = $1`, r.ID[:]).Scan(&r.State, &holder, &r.Epoch, &r.Takeovers, &body)
	if err != nil {
		t.Fatalf("record of %s: %v", key, err)
	}
	r.Executor = executorID(t, holder)
	if body != nil {
		r.Response = &records.Response{Body: body}
	}
	return r
}

// Clock is a moment of the database's clock.
func (s Sight) Clock(t testing.TB) time.Time {
	t.Helper()
	var now time.Time
	if err := s.DB.QueryRowContext(t.Context(), "SELECT "+SightMark+" clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

// AwaitClock waits until so much time has passed on the database's clock.
func (s Sight) AwaitClock(t testing.TB, since time.Time, d time.Duration) {
	t.Helper()
	Await(t, "the database's clock goes on by "+d.String(), func() bool { return s.Clock(t).Sub(since) > d })
}

// IDOf is the record of a key that a request of these tests asks under.
func IDOf(key string) records.ID { return KeyOf(key).ID() }

// KeyOf is the whole key.
func KeyOf(key string) records.Key {
	return records.Key{Realm: "fleet", Principal: "tester", Key: key}
}
