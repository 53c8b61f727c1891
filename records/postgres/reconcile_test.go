package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// openQuery opens a query on a database with a table of payments.
func openQuery(t *testing.T, dsn, text string) (*postgres.Query, error) {
	t.Helper()
	q, err := postgres.OpenQuery(t.Context(), postgres.QueryConfig{DSN: dsn, Text: text})
	if err == nil {
		t.Cleanup(func() {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return q, err
}

func paymentsTable(t *testing.T) string {
	t.Helper()
	dsn := postgrestest.Shared(t).Empty(t)
	_, err := postgrestest.Open(t, dsn).ExecContext(t.Context(), `
CREATE TABLE payments (operation text, resource text, amount int, raw bytea);
INSERT INTO payments VALUES ('pay', 'order 7', 42, '\x00ff'), ('twice', 'order 8', 1, NULL), ('twice', 'order 8', 2, NULL)`)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

func TestQuery(t *testing.T) {
	t.Parallel()
	dsn := paymentsTable(t)
	record := records.Record{
		ID: records.Key{Key: "k"}.ID(), Operation: "pay", Resource: "order 7", Realm: "it's", Key: "k", Epoch: 1 << 60,
		Fingerprint: records.FingerprintOf("x"),
	}
	previous, _ := records.ParseExecutorID("00000000-0000-4000-8000-000000000001")
	answer := func(status int, body string, headers ...records.Header) records.Account {
		return records.Account{Finding: "applied", Response: records.Response{Status: status, Headers: headers, Body: []byte(body)}}
	}
	for name, c := range map[string]struct {
		text string
		want records.Account
		errs string
	}{
		"Applied": {
			text: `SELECT 'applied' AS finding, 201 AS status, json_build_object('Location', '/payments/1', 'X', json_build_array('a', 'b')) AS headers,
			       json_build_object('amount', amount)::text AS body FROM payments WHERE operation = :operation AND resource = :resource;`,
			want: answer(201, `{"amount" : 42}`, records.Header{Name: "Location", Value: "/payments/1"}, records.Header{Name: "X", Value: "a"}, records.Header{Name: "X", Value: "b"}),
		},
		"AppliedWithBytes":       {text: `SELECT 'applied' AS finding, 200 AS status, raw AS body FROM payments WHERE resource = :resource`, want: answer(200, "\x00\xff")},
		"AppliedWithoutABody":    {text: `SELECT 'applied' AS finding, 204::smallint AS status`, want: answer(204, "")},
		"NoRowIsNotApplied":      {text: `SELECT 'applied' AS finding, 201 AS status FROM payments WHERE resource = :key`, want: records.Account{Finding: "not_applied"}},
		"Pending":                {text: `SELECT 'pending' AS finding, 'amount ' || amount AS reason FROM payments WHERE operation = :operation`, want: records.Account{Finding: "pending", Reason: "amount 42"}},
		"NotAppliedInWords":      {text: `SELECT 'not_applied' AS finding, NULL::int AS status`, want: records.Account{Finding: "not_applied"}},
		"WithAnother":            {text: `WITH p AS (SELECT * FROM payments) SELECT 'pending' AS finding FROM p WHERE resource = :resource -- the last`, want: records.Account{Finding: "pending"}},
		"EveryParameter":         {text: `SELECT 'pending' AS finding, concat_ws(' ', :operation_ref, :operation, :resource, :realm, :key, :fingerprint, :epoch + 1, :previous_executor::uuid, :key) AS reason`, want: records.Account{Finding: "pending", Reason: strings.Join([]string{record.ID.String(), "pay", "order 7", "it's", "k", "FP", "1152921504606846977", previous.String(), "k"}, " ")}},
		"TwoRowsAreNoFinding":    {text: `SELECT 'applied' AS finding, 201 AS status FROM payments WHERE operation = 'twice'`, errs: "more than one row"},
		"AppliedAlone":           {text: `SELECT 'applied' AS finding`, errs: "applied without a status"},
		"AppliedWithANull":       {text: `SELECT 'applied' AS finding, NULL::int AS status`, errs: "applied without a status"},
		"AResponseWithoutCause":  {text: `SELECT 'not_applied' AS finding, 201 AS status`, errs: "with a response"},
		"HeadersThatAreNoObject": {text: `SELECT 'applied' AS finding, 201 AS status, '["a"]' AS headers`, errs: "JSON object"},
		"HeadersThatAreNoText":   {text: `SELECT 'applied' AS finding, 201 AS status, '{"a": 1}'::jsonb AS headers`, errs: "JSON object"},
		"AnErrorOfTheServer":     {text: `SELECT 'applied' AS finding, 1 / (length(:key) - 1) AS status`, errs: "division by zero"},
		"ATimeThatRunsOut":       {text: `SELECT 'applied' AS finding, 201 AS status FROM pg_sleep(CASE WHEN :key = '' THEN 0 ELSE 60 END)`, errs: "statement timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := postgres.QueryConfig{DSN: dsn, Text: c.text, Connections: 1}
			if strings.HasPrefix(name, "ATime") {
				config.Timeout = 50 * time.Millisecond
			}
			q, err := postgres.OpenQuery(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.Close() })
			got, err := q.Ask(t.Context(), record, previous)
			if c.errs != "" {
				if err == nil || !strings.Contains(err.Error(), c.errs) {
					t.Errorf("found %+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c.want.Reason = strings.Replace(c.want.Reason, "FP", textOf(record.Fingerprint), 1)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("AnUnknownFindingIsPassedOnToBeRefused", func(t *testing.T) {
		t.Parallel()
		q, err := openQuery(t, dsn, `SELECT 'perhaps' AS finding`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.Ask(t.Context(), record, previous); err != nil || got.Finding != "perhaps" {
			t.Errorf("found %+v, %v", got, err)
		}
	})

	// Errors are logged and noted in the audit, and keys never are.
	t.Run("AnErrorQuotesNoKey", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			`SELECT 'pending' AS finding WHERE :key::uuid IS NOT NULL`,
			`SELECT 'pending' AS finding, :key::bigint::text AS reason`,
			`SELECT 'applied' AS finding, :key AS status`,
			`SELECT 'pending' AS finding FROM query_to_xml('SELECT ' || quote_literal(:key) || '::int', true, false, '')`,
		} {
			q, err := openQuery(t, dsn, text)
			if err != nil {
				t.Fatalf("%s: %v", text, err) // a key that is a number or a uuid is right
			}
			got, err := q.Ask(t.Context(), records.Record{Key: "hunter2"}, previous)
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: found %+v, %v", text, got, err)
			}
		}
	})

	t.Run("WhatNoDatabaseCanHoldIsUndecidable", func(t *testing.T) {
		t.Parallel()
		q, err := openQuery(t, dsn, `SELECT 'applied' AS finding, 201 AS status WHERE :key = 'x'`)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a\x00b", "a\xff"} {
			if got, err := q.Ask(t.Context(), records.Record{Key: key}, previous); err != nil || got.Finding != "undecidable" || got.Reason == "" {
				t.Errorf("%q: found %+v, %v", key, got, err)
			}
		}
	})

	t.Run("ItSeesOnlyWhatIsCommitted", func(t *testing.T) {
		t.Parallel()
		q, err := openQuery(t, dsn, `SELECT 'applied' AS finding, 201 AS status FROM payments WHERE resource = 'under way'`)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := postgrestest.Open(t, dsn).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO payments VALUES ('pay', 'under way')`); err != nil {
			t.Fatal(err)
		}
		if got, err := q.Ask(t.Context(), record, previous); err != nil || got.Finding != "not_applied" {
			t.Errorf("found %+v, %v", got, err)
		}
	})
}

func textOf(f records.Fingerprint) string { return records.ID(f).String() }

func TestOpenQuery(t *testing.T) {
	t.Parallel()
	dsn := paymentsTable(t)
	for name, c := range map[string]struct{ text, want string }{
		"RefusesNothing":            {"  ", "missing"},
		"RefusesAnUnknownParameter": {"SELECT 'applied' AS finding WHERE :id = ''", ":id is no parameter"},
		"RefusesTwoStatements":      {"SELECT 'pending' AS finding; DELETE FROM payments", "want one statement"},
		"RefusesAnOpenQuote":        {"SELECT 'pending", "does not end"},
		"RefusesBadSyntax":          {"SELEC 'pending' AS finding", "syntax error"},
		"RefusesAnUnknownTable":     {"SELECT 'pending' AS finding FROM orders", "orders"},
		"RefusesAnUnknownColumn":    {"SELECT 'pending' AS finding, 1 AS state", `column "state" is none of`},
		"RefusesNoFinding":          {"SELECT 201 AS status", "no column finding"},
		"RefusesAWrongType":         {"SELECT 'pending' AS finding WHERE :epoch = now()", "operator does not exist"},
		"RefusesToWrite":            {"DELETE FROM payments RETURNING 'pending' AS finding", "syntax error"},
		"RefusesToWriteWithin":      {"WITH d AS (DELETE FROM payments RETURNING 1) SELECT 'pending' AS finding FROM d", "top level"},
		"RefusesToLock":             {"SELECT 'pending' AS finding FROM payments FOR UPDATE", "read-only"},
		"RefusesHalfAStatement":     {"SELECT 'pending' AS finding FROM", "syntax error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if q, err := openQuery(t, dsn, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", q, err, c.want)
			}
		})
	}

	t.Run("DoesNotNeedTheServer", func(t *testing.T) {
		t.Parallel()
		k := newLink(t, postgrestest.Shared(t).Addr())
		k.freeze()
		q, err := postgres.OpenQuery(t.Context(), postgres.QueryConfig{
			DSN: k.through(dsn), Text: "SELECT 'pending' AS finding", Timeout: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		if _, err := q.Ask(t.Context(), records.Record{}, records.ExecutorID{}); !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("error = %v, want ErrUnavailable", err)
		}
		k.thaw()
		await(t, "an answer", func() bool {
			got, err := q.Ask(context.WithoutCancel(t.Context()), records.Record{}, records.ExecutorID{})
			return err == nil && got.Finding == "pending"
		})
	})

	t.Run("WritesNothingThroughAFunction", func(t *testing.T) {
		t.Parallel()
		db := postgrestest.Open(t, dsn)
		_, err := db.ExecContext(t.Context(), `
CREATE FUNCTION sneak() RETURNS text LANGUAGE plpgsql AS $$ BEGIN DELETE FROM payments; RETURN 'applied'; END $$`)
		if err != nil {
			t.Fatal(err)
		}
		q, err := openQuery(t, dsn, `SELECT sneak() AS finding, 201 AS status`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Ask(t.Context(), records.Record{}, records.ExecutorID{}); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("error = %v", err)
		}
	})
}
