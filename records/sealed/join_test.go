package sealed_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/records/sealed"
)

// TestJoin seals what an owner writes in a transaction of its own.
func TestJoin(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	raw, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	sealer := sealed.New(sealed.Config{Keys: parse(t, "a:"+secret("a"))})
	s := &sight{t: t, raw: raw, sealer: sealer, sealed: sealer.Over(raw), log: new(bytes.Buffer)}
	s.by = s.executor()
	join := &postgres.Join{Store: raw, DB: sqlx.NewDb(postgrestest.Open(t, dsn), "postgres"), Seal: sealer.Seal}
	r := s.claim("k", nil)
	body := []byte("what the answer says")
	for range 2 { // again, as after a lost reply
		err := join.FinalizeAs(t.Context(), r.ID, r.Fence(), func(context.Context, *sqlx.Tx) (records.Outcome, error) {
			return records.Outcome{Response: records.Response{Status: 201, Body: body}, Retention: time.Hour}, nil
		})
		s.check(err)
	}
	if got := s.stored(r.ID).Response.Body; bytes.Contains(got, body) {
		t.Errorf("stored as %q", got)
	}
	s.wants(r.ID, body)
}
