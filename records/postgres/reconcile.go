package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// QueryConfig says what a [Query] asks of which database. The zero value of a
// field is its default.
type QueryConfig struct {
	// DSN of the user's database, a libpq URL or keyword string. It must lead to
	// a server that takes writes: a standby may not have seen the effect yet.
	// Required.
	DSN string
	// Text is one SELECT, over the named parameters :operation_ref, :operation,
	// :resource, :realm, :key, :fingerprint, :epoch and :previous_executor; of
	// these epoch is a bigint, the others are text. Required.
	Text string
	// Timeout ends a statement, and twice that a whole question. Default five
	// seconds.
	Timeout time.Duration
	// Connections at most. Default two.
	Connections int
	// Logger of what no caller sees; nil discards.
	Logger *slog.Logger
}

// Query asks a user's database what became of an operation, in a transaction
// that can only read.
//
// Its row has a column finding: applied, not_applied, pending or undecidable;
// with applied a column status, and perhaps headers (a JSON object of strings
// or arrays of strings) and body (text or bytea; without, the body is empty).
// It may have a column reason. No row is not_applied: there is nothing yet.
//
// Anything else, such as two rows, is an error and no finding.
type Query struct {
	db     *sqlx.DB
	text   string
	names  []string // of the parameters, in order
	config QueryConfig

	mu      sync.Mutex
	checked bool // the server has accepted the text
}

// queried are the columns that a query may have.
var queried = []string{"finding", "reason", "status", "headers", "body"}

// OpenQuery makes the query ready. It refuses what the server does not accept:
// syntax, names, columns, anything that writes. If the server cannot be
// reached that is put off until it is asked, so that a node can start without
// it.
func OpenQuery(ctx context.Context, c QueryConfig) (*Query, error) {
	q, dsn, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("reconcile query: %w", err)
	}
	if err := q.connect(dsn); err != nil {
		return nil, fmt.Errorf("reconcile query: %w", err)
	}
	err = q.check(ctx)
	switch {
	case errors.Is(err, records.ErrUnavailable):
		q.config.Logger.WarnContext(ctx, "the query that reconciles could not be checked", "error", err)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("reconcile query: %w", err), q.Close())
	}
	return q, nil
}

// Validate reports what needs no server to be seen to be wrong.
func (c QueryConfig) Validate() error {
	_, _, err := c.read()
	return err
}

func (c QueryConfig) read() (*Query, pq.Config, error) {
	if c.Timeout < 0 || c.Connections < 0 {
		return nil, pq.Config{}, &records.InvalidError{Field: "timeout, connections", Reason: "negative"}
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultDataTimeout
	}
	if c.Connections == 0 {
		c.Connections = 2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	text, names, err := numbered(c.Text)
	if err != nil {
		return nil, pq.Config{}, &records.InvalidError{Field: "query", Reason: err.Error()}
	}
	dsn, _, err := parseDSN(c.DSN)
	return &Query{text: text, names: names, config: c}, dsn, err
}

func (q *Query) connect(dsn pq.Config) error {
	c := q.config
	l := limits{connections: c.Connections, statement: c.Timeout, lock: c.Timeout, idle: c.Timeout}
	dsn = dsn.Clone()
	dsn.BinaryParameters = true // one round trip, and nothing left behind for a pooler
	if dsn.Runtime == nil {
		dsn.Runtime = map[string]string{}
	}
	maps.Copy(dsn.Runtime, l.settings())
	made, err := connector(dsn, l.silence(), nil)
	if err != nil {
		return err
	}
	q.db = sqlx.NewDb(sql.OpenDB(made), "postgres")
	q.db.SetMaxOpenConns(c.Connections)
	q.db.SetMaxIdleConns(c.Connections)
	q.db.SetConnMaxIdleTime(time.Minute)
	return nil
}

// Close closes the connections.
func (q *Query) Close() error { return ignoreBroken(q.db.Close()) }

// Ask asks what became of a record's operation, which an executor had begun.
func (q *Query) Ask(ctx context.Context, r records.Record, previous records.ExecutorID) (records.Account, error) {
	for _, s := range []string{r.Operation, r.Resource, r.Realm, r.Key} {
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			return records.Account{Finding: "undecidable", Reason: "a name of the record is no text that a database can hold"}, nil
		}
	}
	if err := q.check(ctx); err != nil {
		return records.Account{}, fmt.Errorf("reconcile query: %w", err)
	}
	var rows []answerRow
	err := q.read(ctx, q.arguments(r, previous), 2, func(found *sqlx.Rows) error {
		err := sqlx.StructScan(found, &rows)
		if _, server := errors.AsType[*pq.Error](err); err != nil && !server && faultOf(err) == faultInternal {
			return errMistyped // the error quotes the value
		}
		return err
	})
	switch {
	case err != nil:
		return records.Account{}, fmt.Errorf("reconcile query: %w", err)
	case len(rows) == 0:
		return records.Account{Finding: "not_applied"}, nil
	case len(rows) > 1:
		return records.Account{}, errors.New("reconcile query: more than one row")
	}
	a, err := rows[0].account()
	if err != nil {
		err = fmt.Errorf("reconcile query: %w", err)
	}
	return a, err
}

var errMistyped = errors.New("a column is not of its type: status is a number, the others are text")

func (q *Query) arguments(r records.Record, previous records.ExecutorID) []any {
	values := map[string]any{
		"operation_ref": r.ID.String(), "operation": r.Operation, "resource": r.Resource, "realm": r.Realm, "key": r.Key,
		"fingerprint": fmt.Sprintf("%x", r.Fingerprint), "epoch": r.Epoch, "previous_executor": previous.String(),
	}
	args := make([]any, len(q.names))
	for i, name := range q.names {
		args[i] = values[name]
	}
	return args
}

// check has the server plan the text, and looks at its columns, once. All
// parameters are null: the planner works out what it can, and an empty key might
// be no number.
func (q *Query) check(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.checked {
		return nil
	}
	err := q.read(ctx, make([]any, len(q.names)), 0, func(rows *sqlx.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for _, c := range columns {
			if !slices.Contains(queried, c) {
				return &records.InvalidError{Field: "query", Reason: fmt.Sprintf("column %q is none of %s", c, strings.Join(queried, ", "))}
			}
		}
		if !slices.Contains(columns, "finding") {
			return &records.InvalidError{Field: "query", Reason: "there is no column finding"}
		}
		return rows.Err()
	})
	q.checked = err == nil
	return err
}

// read runs the text, up to a number of rows, in a transaction of its own.
func (q *Query) read(ctx context.Context, args []any, limit int, rows func(*sqlx.Rows) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*q.config.Timeout, errSilence)
	defer cancel()
	tx, err := q.db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true})
	if err != nil {
		return classify(ctx, "begin", err)
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	found, err := tx.QueryxContext(ctx, fmt.Sprintf("SELECT q.* FROM (%s\n) q LIMIT %d", q.text, limit), args...)
	if err != nil {
		return refused(ctx, "ask", err)
	}
	defer func() { _ = found.Close() }()
	return refused(ctx, "read answer", rows(found))
}

// quoting is an error whose message may quote what was asked about, and so a
// key. What is told of it is only its kind.
type quoting struct{ server *pq.Error }

// Error names the kind.
func (e quoting) Error() string {
	return fmt.Sprintf("%s (%s)", strings.ReplaceAll(e.server.Code.Name(), "_", " "), e.server.Code)
}

// Unwrap is the server's error.
func (e quoting) Unwrap() error { return e.server }

// discreet is an error that quotes no argument. Of the text, and of the server's
// own state, a server speaks in words that are worth having (SQLSTATE classes,
// PostgreSQL manual, appendix A).
func discreet(err error) error {
	server, ok := errors.AsType[*pq.Error](err)
	of := func(class string) bool { return strings.HasPrefix(string(server.Code), class) }
	if !ok || slices.ContainsFunc([]string{"08", "0A", "25", "40", "42", "53", "54", "55", "57", "58"}, of) {
		return err
	}
	return quoting{server}
}

// refused is classify for a transaction that can only read: where a store
// would look for another server, here the text is to blame.
func refused(ctx context.Context, verb string, err error) error {
	if err != nil && faultOf(err) == faultReadOnly {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return classify(ctx, verb, discreet(err))
}

// answerRow is a row of an answer. What a query leaves out is null.
type answerRow struct {
	Finding sql.NullString `db:"finding"`
	Reason  sql.NullString `db:"reason"`
	Status  sql.NullInt32  `db:"status"`
	Headers []byte         `db:"headers"`
	Body    []byte         `db:"body"`
}

func (r answerRow) account() (records.Account, error) {
	a := records.Account{Finding: r.Finding.String, Reason: r.Reason.String}
	if r.Finding.String != "applied" {
		if r.Status.Valid || r.Headers != nil || r.Body != nil {
			return a, fmt.Errorf("finding %q with a response", a.Finding)
		}
		return a, nil
	}
	if !r.Status.Valid {
		return a, errors.New("applied without a status")
	}
	a.Response = records.Response{Status: int(r.Status.Int32), Body: append([]byte{}, r.Body...)}
	if r.Headers == nil {
		return a, nil
	}
	var h map[string]values
	if err := json.Unmarshal(r.Headers, &h); err != nil {
		return a, fmt.Errorf("headers: want a JSON object of strings or arrays of strings: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			a.Response.Headers = append(a.Response.Headers, records.Header{Name: name, Value: v})
		}
	}
	return a, nil
}

// values are a header's: one, or some.
type values []string

// UnmarshalJSON implements [json.Unmarshaler].
func (v *values) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil && string(b) != "null" {
		*v = values{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(v))
}
