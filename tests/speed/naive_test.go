//go:build unix

package speed_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	_ "github.com/lib/pq" // the driver that sql.Open names

	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// naive is what one writes without the layer: a row for the key before the
// handler runs, its response after, each a statement of its own, outside any
// transaction, and no thought given to a process that dies in between.
type naive struct {
	next                 http.Handler
	insert, update, load statement
}

// statement is a text that the database has, or is sent anew every time.
type statement interface {
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, args ...any) *sql.Row
}

// plain is a statement that nobody has prepared: the driver has it parsed first,
// with a round trip of its own.
type plain struct {
	db   *sql.DB
	text string
}

func (p plain) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return p.db.ExecContext(ctx, p.text, args...)
}

func (p plain) QueryRowContext(ctx context.Context, args ...any) *sql.Row {
	return p.db.QueryRowContext(ctx, p.text, args...)
}

const (
	// naiveTable is as wide as a record.
	naiveTable = `
CREATE TABLE IF NOT EXISTS idempotency (
    id          bytea PRIMARY KEY,
    realm       bytea NOT NULL,
    key         bytea NOT NULL,
    operation   bytea NOT NULL,
    resource    bytea NOT NULL,
    fingerprint bytea NOT NULL,
    state       text NOT NULL,
    owner       text NOT NULL,
    url         text NOT NULL,
    epoch       bigint NOT NULL,
    attempt     bytea NOT NULL,
    status      integer,
    headers     bytea,
    body        bytea,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    expires_at  timestamptz
)`
	naiveExpiry = `CREATE INDEX IF NOT EXISTS idempotency_expiry ON idempotency (expires_at) WHERE expires_at IS NOT NULL`
	naiveInsert = `
INSERT INTO idempotency (id, realm, key, operation, resource, fingerprint, state, owner, url, epoch, attempt, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 'in_progress', $7, $8, 1, $9, clock_timestamp())
    ON CONFLICT (id) DO NOTHING`
	naiveUpdate = `
UPDATE idempotency
   SET state = 'finished', status = $2, headers = $3, body = $4, finished_at = clock_timestamp(), expires_at = clock_timestamp() + interval '24 hours'
 WHERE id = $1 AND state = 'in_progress'`
	naiveLoad = `SELECT fingerprint, status, headers, body FROM idempotency WHERE id = $1`

	naiveOwner = "0198c5f7-7a34-4c1e-9d1b-3d0d8d1c2b11"
	naiveURL   = "http://127.0.0.1:8081"
)

// openNaive serves the payments over a pool of so many connections. tuned is
// what somebody makes of it who has measured: prepared statements, and
// parameters in binary.
func openNaive(t testing.TB, dsn string, connections int, tuned bool) (address string) {
	t.Helper()
	if tuned {
		dsn += "&binary_parameters=yes"
	}
	db := postgrestest.Open(t, dsn)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	for _, text := range []string{naiveTable, naiveExpiry} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	n := &naive{next: http.HandlerFunc(pay)}
	for text, statement := range map[string]*statement{naiveInsert: &n.insert, naiveUpdate: &n.update, naiveLoad: &n.load} {
		if !tuned {
			*statement = plain{db, text}
			continue
		}
		prepared, err := db.PrepareContext(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		*statement = prepared
	}
	router := chi.NewRouter()
	router.Method(http.MethodPost, "/orders/{id}/payments", n)
	return listen(t, router)
}

// ServeHTTP implements [http.Handler].
func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || key == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	principal := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	id := sha256.Sum256([]byte(key + "\x00" + string(principal[:])))
	fingerprint := sha256.Sum256([]byte(r.Method + "\x00" + r.URL.RequestURI() + "\x00" + string(body)))
	ctx := context.WithoutCancel(r.Context())
	result, err := n.insert.ExecContext(ctx, id[:], []byte("shop"), []byte(key), []byte("create-payment"), []byte(chi.URLParam(r, "id")),
		fingerprint[:], naiveOwner, naiveURL, id[:16])
	if err == nil {
		var fresh int64
		if fresh, err = result.RowsAffected(); err == nil && fresh == 0 {
			n.repeat(ctx, w, id, fingerprint)
			return
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	k := &keeper{header: http.Header{}, status: http.StatusOK}
	n.next.ServeHTTP(k, r)
	var headers bytes.Buffer
	_ = k.header.Write(&headers) // a buffer takes all
	if _, err := n.update.ExecContext(ctx, id[:], k.status, headers.Bytes(), k.body.Bytes()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	maps.Copy(w.Header(), k.header)
	w.Header().Set("Idempotency-Expires", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat))
	w.WriteHeader(k.status)
	_, _ = w.Write(k.body.Bytes()) // a client that is gone will ask again
}

// keeper keeps a response.
type keeper struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (k *keeper) Header() http.Header { return k.header }

// WriteHeader implements [http.ResponseWriter].
func (k *keeper) WriteHeader(status int) { k.status = status }

// Write implements [http.ResponseWriter].
func (k *keeper) Write(p []byte) (int, error) { return k.body.Write(p) }

// repeat answers a duplicate.
func (n *naive) repeat(ctx context.Context, w http.ResponseWriter, id, fingerprint [sha256.Size]byte) {
	var (
		first         []byte
		status        sql.NullInt64
		headers, body []byte
	)
	err := n.load.QueryRowContext(ctx, id[:]).Scan(&first, &status, &headers, &body)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !bytes.Equal(first, fingerprint[:]):
		http.Error(w, "key reused", http.StatusUnprocessableEntity)
	case !status.Valid:
		http.Error(w, "in progress", http.StatusConflict)
	default:
		for line := range strings.Lines(string(headers)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(int(status.Int64))
		_, _ = w.Write(body) // a client that is gone will ask again
	}
}
