package postgres_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/postgres/postgrestest"
)

// TestMillion shows that no statement grows with the table. The hot path's are
// prepared and planned while the table is empty, and the plans are kept while a
// million rows come in, which nobody analyses: what a fleet's first hours look
// like. Then all run again on the table once it was analysed.
func TestMillion(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	db := postgrestest.Open(t, dsn)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	m := bigTable{t, conn}
	m.exec(`
INSERT INTO probate.executors (id, slot, url, public_key, policy, state, registered_at, beat, heartbeat_at, lease_ttl, lease_since)
VALUES ('` + living + `', 'living', 'http://living', '', 'probe', 'active', now(), 0, now(), '1 hour', now()),
       ('` + dead + `', 'dead', 'http://dead', '', 'probe', 'fenced', now(), 0, now() - interval '1 year', '1 hour', now()),
       ('00000000-0000-4000-8000-000000000000', 'old', 'http://old', '', 'probe', 'gone', now(), 0, now() - interval '1 year', '1 hour', now())`)
	for _, s := range hotPath {
		m.exec("PREPARE " + s.name + " AS " + s.text)
		for range 10 { // from the sixth on the plan is kept
			m.exec("BEGIN")
			m.exec("EXECUTE " + s.name + s.args)
			m.exec("ROLLBACK")
		}
	}
	fill(t, dsn, 1_000_000)
	m.exec(`
UPDATE probate.records SET expires_at = now() - interval '1 day'
 WHERE id IN (SELECT sha256(i::text::bytea) FROM generate_series(1, 3000) i)`)
	m.exec(`
UPDATE probate.records SET state = 'unknown', status = NULL
 WHERE id IN (SELECT sha256(i::text::bytea) FROM generate_series(5001, 5300) i)`)
	m.exec(`
UPDATE probate.records SET state = 'in_progress', executor_id = '` + dead + `', expires_at = NULL, status = NULL
 WHERE id IN (SELECT sha256(i::text::bytea) FROM generate_series(6001, 6500) i)`)

	for _, analysed := range []string{"never", "analysed"} {
		if analysed == "analysed" {
			m.exec("ANALYZE probate.records")
		}
		for _, s := range hotPath {
			m.touches(analysed, s, "EXECUTE "+s.name+s.args)
		}
		for _, s := range scans {
			m.touches(analysed, s, bind(s.text, s.args))
		}
	}
}

const (
	living = "00000000-0000-4000-8000-000000000001"
	dead   = "00000000-0000-4000-8000-000000000002"
)

// costed is a statement, what to call it with, and how many rows of records
// it may touch.
type costed struct {
	name, text, args string
	rows             int
}

// Ten keys that are finalized, and one that is not there.
var tenIDs = idArray(1, 10)

var hotPath = []costed{
	{"reserve_one", postgres.ReserveOne, `(0, '` + living + `', sha256('new'), 'r', 'k', 'o', 's', sha256(''), '\x00', NULL)`, 4},
	{"reserve_many", postgres.ReserveMany, `(0, ARRAY['` + living + `']::uuid[], array_fill('` + living + `'::uuid, ARRAY[10]), ` +
		idArray(-9, 0) + strings.Repeat(`, array_fill('k'::bytea, ARRAY[10])`, 4) + `, array_fill(sha256(''), ARRAY[10])` +
		`, array_fill('\x00'::bytea, ARRAY[10]), array_fill(NULL::bytea, ARRAY[10]))`, 30},
	{"reserve_taken", postgres.ReserveMany, `(600000000, ARRAY['` + living + `']::uuid[], array_fill('` + living + `'::uuid, ARRAY[10]), ` +
		idArray(7001, 7010) + strings.Repeat(`, array_fill('k'::bytea, ARRAY[10])`, 4) + `, array_fill(sha256(''), ARRAY[10])` +
		`, array_fill('\x00'::bytea, ARRAY[10]), array_fill(NULL::bytea, ARRAY[10]))`, 30},
	{"load_many", postgres.LoadMany, `(0, array_fill('` + living + `'::uuid, ARRAY[10]), ` + tenIDs + `)`, 10},
	{"settled_many", postgres.SettledMany, `(` + tenIDs + `)`, 10},
	{"settle_one", postgres.SettleOne, `(sha256('6001'), '` + dead + `', 6001, 'finalized', 201, '\x00', 'body', 1000000)`, 2},
	{"settle_many", postgres.SettleMany, `(` + idArray(6001, 6010) + `, array_fill('` + dead + `'::uuid, ARRAY[10]), ` +
		epochArray(6001, 6010) + `, array_fill('finalized'::text, ARRAY[10]), ` +
		`array_fill(201::smallint, ARRAY[10]), array_fill('\x00'::bytea, ARRAY[10]), array_fill('body'::bytea, ARRAY[10]), ` +
		`array_fill(1000000::bigint, ARRAY[10]))`, 30},
	{"take_over", postgres.TakeOver, `('` + living + `', '\x01', sha256('6001'), '` + dead + `', 6001, false)`, 2},
	{"claim_unknown", postgres.ClaimUnknown, `('` + living + `', '\x01', sha256('5001'), 5001)`, 2},
}

var scans = []costed{
	{"purge", postgres.Purge, `(0, 1000)`, 3000},
	{"purge_nothing", postgres.Purge, `(864000000000, 1000)`, 0},
	{"orphans", postgres.Orphans, `('\x00', 100)`, 100},
	{"in_progress", postgres.InProgress, `('` + dead + `', '\x00', 100)`, 100},
	{"purge_executors", postgres.PurgeExecutors, `(ARRAY['` + dead + `', '00000000-0000-4000-8000-000000000000']::uuid[])`, 2},
	{"list", postgres.ListText(records.Filter{}), listArgs("NULL", "NULL"), postgres.MaxExamined},
	{"list_key_of_nobody", postgres.ListText(records.Filter{}), listArgs("'nobody'", "NULL"), postgres.MaxExamined},
	{"list_unknown", postgres.ListText(records.Filter{State: records.Unknown}), listArgs("NULL", "'unknown'"), 300},
	{"release_by_operator", postgres.ReleaseByOperator, `(sha256('6001'), 6001, '\x01')`, 3},
	{"release_of_nothing", postgres.ReleaseByOperator, `(sha256('6001'), 1, '\x01')`, 3},
	{"resolve_by_operator", postgres.ResolveByOperator, `(sha256('5001'), 5001, '\x01', 201, '\x00', 'body', 1000000, '\x00')`, 3},
	{"examine_realm", postgres.ExamineRealm, `('\x00', 'nobody', 10000)`, 10000},
	{"erase_records", postgres.EraseRecords, `(` + idArray(6400, 6899) + `, '\x00')`, 1500},
	{"list_in_progress", postgres.ListText(records.Filter{State: records.InProgress}), listArgs("NULL", "'in_progress'"), 505},
}

func listArgs(key, state string) string {
	return fmt.Sprintf(`('\x00', %d, 101, NULL, %s, NULL, %s, NULL, NULL)`, postgres.MaxExamined, key, state)
}

// idArray names the rows that fill made from one number to another, in order.
func idArray(from, to int) string {
	var ids []string
	for _, i := range inOrder(from, to) {
		ids = append(ids, `'\x`+idOf(i).String()+`'`)
	}
	return "ARRAY[" + strings.Join(ids, ", ") + "]::bytea[]"
}

// epochArray are their epochs, which fill made the same as their numbers.
func epochArray(from, to int) string {
	var epochs []string
	for _, i := range inOrder(from, to) {
		epochs = append(epochs, strconv.Itoa(i))
	}
	return "ARRAY[" + strings.Join(epochs, ", ") + "]::bigint[]"
}

func inOrder(from, to int) []int {
	var numbers []int
	for i := from; i <= to; i++ {
		numbers = append(numbers, i)
	}
	slices.SortFunc(numbers, func(a, b int) int { return idOf(a).Compare(idOf(b)) })
	return numbers
}

func idOf(number int) records.ID { return sha256.Sum256([]byte(strconv.Itoa(number))) }

// bind writes the arguments into a text, as a statement that is planned anew
// has them.
func bind(text, args string) string {
	values := splitArgs(args)
	for n := len(values); n > 0; n-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", n), values[n-1])
	}
	return text
}

// splitArgs splits at the commas outside brackets.
func splitArgs(args string) []string {
	depth, from := 0, 0
	var values []string
	args = args[1 : len(args)-1]
	for i, c := range args {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				values = append(values, strings.TrimSpace(args[from:i]))
				from = i + 1
			}
		}
	}
	return append(values, strings.TrimSpace(args[from:]))
}

type bigTable struct {
	*testing.T
	conn *sql.Conn
}

func (m bigTable) exec(statement string) {
	m.Helper()
	if _, err := m.conn.ExecContext(m.Context(), statement); err != nil {
		m.Fatalf("%v\n%s", err, statement)
	}
}

// plan is a node of EXPLAIN's tree.
type plan struct {
	Node        string  `json:"Node Type"`
	Relation    string  `json:"Relation Name"`
	Index       string  `json:"Index Name"`
	Rows        float64 `json:"Actual Rows"`
	Loops       float64 `json:"Actual Loops"`
	Removed     float64 `json:"Rows Removed by Filter"`
	Rechecked   float64 `json:"Rows Removed by Index Recheck"`
	Hit         int     `json:"Shared Hit Blocks"`
	Read        int     `json:"Shared Read Blocks"`
	Conflicting float64 `json:"Conflicting Tuples"`
	Plans       []plan  `json:"Plans"`
}

// touched counts the rows of records that a plan's scans looked at, and finds
// a scan of the whole table.
func (p plan) touched() (rows float64, scan string) {
	if p.Relation == "records" && strings.Contains(p.Node, "Scan") {
		rows = (p.Rows + p.Removed + p.Rechecked) * p.Loops
		if p.Node == "Seq Scan" {
			scan = "a scan of the whole table"
		}
	}
	for _, child := range p.Plans {
		n, s := child.touched()
		rows += n
		scan += s
	}
	return rows, scan
}

// touches demands that a statement touches few rows, and rolls it back.
func (m bigTable) touches(analysed string, s costed, statement string) {
	m.Helper()
	ctx := context.WithoutCancel(m.Context())
	m.exec("BEGIN")
	defer func() { _, _ = m.conn.ExecContext(ctx, "ROLLBACK") }()
	var out []byte
	err := m.conn.QueryRowContext(m.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement).Scan(&out)
	if err != nil {
		m.Fatalf("%s: %v", s.name, err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(out, &plans); err != nil {
		m.Fatal(err)
	}
	p := plans[0].Plan
	if s.name == "settle_many" && p.Conflicting != 10 {
		m.Errorf("%s writes %.0f rows, want 10: it shows nothing", s.name, p.Conflicting)
	}
	rows, scan := p.touched()
	// A B-tree of a million rows is four pages deep: rows times what a row may
	// cost in the table and four indexes, and something to begin with.
	blocks, most := p.Hit+p.Read, 200+40*max(s.rows, 1)
	m.Logf("%-9s %-20s %6.0f rows of records, %6d blocks", analysed, s.name, rows, blocks)
	if rows > float64(s.rows) || scan != "" || blocks > most {
		m.Errorf("%s, %s: touches %.0f rows of records (at most %d) and %d blocks (at most %d); %s\n%s",
			s.name, analysed, rows, s.rows, blocks, most, scan, out)
	}
}
