package postgres

// The statements about single records, by id. Each is a decision: it names the
// fence or the condition under which it holds, and repeats it on the row that
// it has locked. None may scan a table, also not one that was never analysed
// and grew since the plan was cached; hence the forms that leave the planner
// no choice. A lateral or correlated subquery that cannot be pulled up (OFFSET
// 0, LIMIT, FOR UPDATE) is run once a row, through the primary key, and ON
// CONFLICT always is. A state is tested with IS NOT DISTINCT FROM, which is "="
// that no partial index answers: such an index is small and looks cheap, and is
// full of what was true a moment ago. An array is handed over as (SELECT $n),
// so that a plan does not depend on its length and is made once.

// recordColumns are the columns of a record r, in full.
const recordColumns = `
       r.id, r.realm, r.key, r.operation, r.resource, r.fingerprint,
       r.state, r.executor_id, r.executor_url, r.epoch, r.attempt, r.takeovers,
       r.request, r.status, r.headers, r.body,
       r.created_at, r.finalized_at, r.expires_at`

// claimable: released, or past its retention and the grace, and nothing else.
// The argument for the grace, in microseconds, is $1 wherever it is used.
const (
	claimableR = `(r.state = 'released' OR r.state IN ('finalized', 'unknown')
        AND r.expires_at < clock_timestamp() - $1::bigint * interval '1 microsecond')`
	claimableO = `(o.state = 'released' OR o.state IN ('finalized', 'unknown')
        AND o.expires_at < clock_timestamp() - $1::bigint * interval '1 microsecond')`
)

// asker is the executor that claims. The key-share lock keeps it active until
// the claim has committed: a fence waits for it (lockExecutor), a heartbeat does
// not.
const (
	askerOne = `
SELECT` + executorColumns + `
  FROM probate.executors e
 WHERE e.id = $2::uuid AND e.state = 'active'
   FOR KEY SHARE`
	askerMany = `
SELECT` + executorColumns + `
  FROM probate.executors e
 WHERE e.id = ANY ((SELECT $2::uuid[])::uuid[]) AND e.state = 'active'
   FOR KEY SHARE`
)

// onClaimable ends the INSERT of both reserve statements. A claim over an old
// row starts the record anew, one epoch on, and only while the row it has
// locked is claimable.
const onClaimable = `
    ON CONFLICT (id) DO UPDATE
   SET realm = excluded.realm, key = excluded.key,
       operation = excluded.operation, resource = excluded.resource,
       fingerprint = excluded.fingerprint, state = 'in_progress',
       executor_id = excluded.executor_id, executor_url = excluded.executor_url,
       epoch = r.epoch + 1, attempt = excluded.attempt, takeovers = 0,
       request = excluded.request, status = NULL, headers = NULL, body = NULL,
       created_at = excluded.created_at, finalized_at = NULL, expires_at = NULL
 WHERE ` + claimableR + `
RETURNING r.id, r.executor_id, r.epoch, r.created_at
)`

// reserveOne claims a key for an active executor, and returns both. Zero rows:
// somebody has the key, or the executor is not active.
const reserveOne = `
WITH m AS MATERIALIZED (` + askerOne + `
), i AS (
INSERT INTO probate.records AS r
       (id, realm, key, operation, resource, fingerprint, state,
        executor_id, executor_url, epoch, attempt, takeovers, request, created_at)
SELECT $3::bytea, $4::bytea, $5::bytea, $6::bytea, $7::bytea, $8::bytea, 'in_progress',
       m.e_id, m.e_url, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       $9::bytea, 0, $10::bytea, clock_timestamp()
  FROM m
 WHERE NOT EXISTS (SELECT 1 FROM probate.records o
                    WHERE o.id = $3::bytea AND NOT ` + claimableO + ` OFFSET 0)` + onClaimable + `
SELECT i.id, i.epoch, i.created_at, m.*
  FROM i
  JOIN m ON m.e_id = i.executor_id`

// reserveMany is reserveOne for many keys, each at most once. Rows are locked
// in order of id. The NOT EXISTS keeps a row that somebody holds in an open
// transaction from stalling the rest: it is passed over, not waited for. It
// returns the records that were claimed and then, without a record, each
// executor once.
const reserveMany = `
WITH m AS MATERIALIZED (` + askerMany + `
), i AS (
INSERT INTO probate.records AS r
       (id, realm, key, operation, resource, fingerprint, state,
        executor_id, executor_url, epoch, attempt, takeovers, request, created_at)
SELECT u.id, u.realm, u.key, u.operation, u.resource, u.fingerprint, 'in_progress',
       m.e_id, m.e_url, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       u.attempt, 0, u.request, clock_timestamp()
  FROM unnest((SELECT $3::uuid[]), (SELECT $4::bytea[]), (SELECT $5::bytea[]),
              (SELECT $6::bytea[]), (SELECT $7::bytea[]), (SELECT $8::bytea[]),
              (SELECT $9::bytea[]), (SELECT $10::bytea[]), (SELECT $11::bytea[]))
       AS u (asker, id, realm, key, operation, resource, fingerprint, attempt, request)
  JOIN m ON m.e_id = u.asker
 WHERE NOT EXISTS (SELECT 1 FROM probate.records o
                    WHERE o.id = u.id AND NOT ` + claimableO + ` OFFSET 0)
 ORDER BY u.id` + onClaimable + `
SELECT i.id, i.epoch, i.created_at, m.*
  FROM i
  FULL JOIN m ON false`

// loadMany reads records with their executors, and the state of the executor
// that asks. One row for every id asked, found or not.
const loadMany = `
SELECT u.n AS asked, me.state AS asker_state, coalesce(` + claimableR + `, false) AS claimable,` + recordColumns + `,` + executorColumns + `
  FROM unnest((SELECT $2::uuid[]), (SELECT $3::bytea[])) WITH ORDINALITY AS u (asker, id, n)
  LEFT JOIN LATERAL (SELECT` + recordColumns + `
                       FROM probate.records r WHERE r.id = u.id LIMIT 1) r ON true
  LEFT JOIN LATERAL (SELECT` + executorFields + `
                       FROM probate.executors e WHERE e.id = r.executor_id LIMIT 1) e ON true
  LEFT JOIN LATERAL (SELECT m.state
                       FROM probate.executors m WHERE m.id = u.asker LIMIT 1) me ON true`

// settleOne is the owner's last write: finalized, released or unknown. It
// holds only for the executor and epoch in the row. Zero rows: fenced.
const settleOne = `
UPDATE probate.records r
   SET state = $4::text, status = $5::smallint, headers = $6::bytea, body = $7::bytea,
       finalized_at = c.now, expires_at = c.now + $8::bigint * interval '1 microsecond'
  FROM (SELECT clock_timestamp() AS now) c
 WHERE r.id = $1::bytea AND r.executor_id = $2::uuid AND r.epoch = $3::bigint
   AND r.state IS NOT DISTINCT FROM 'in_progress'`

// settleMany is settleOne for many records, each at most once. It first locks
// the rows that the callers still hold, in order of id; what it then inserts
// is there already, so only the conflict branch can run, and that repeats the
// fence. The form looks roundabout and is the only one found that never scans:
// UPDATE … FROM unnest joins by the table's size at the time of planning.
const settleMany = `
INSERT INTO probate.records AS r
       (id, realm, key, operation, resource, fingerprint, state,
        executor_id, executor_url, epoch, attempt, takeovers,
        status, headers, body, created_at, finalized_at, expires_at)
SELECT l.id, l.realm, l.key, l.operation, l.resource, l.fingerprint, u.state,
       u.executor, l.executor_url, u.epoch, l.attempt, l.takeovers,
       u.status, u.headers, u.body, l.created_at, c.now, c.now + u.retention * interval '1 microsecond'
  FROM (SELECT clock_timestamp() AS now) c
 CROSS JOIN (SELECT s.id, s.executor, s.epoch, s.state, s.status, s.headers, s.body, s.retention
               FROM unnest((SELECT $1::bytea[]), (SELECT $2::uuid[]), (SELECT $3::bigint[]), (SELECT $4::text[]),
                           (SELECT $5::smallint[]), (SELECT $6::bytea[]), (SELECT $7::bytea[]), (SELECT $8::bigint[]))
                    AS s (id, executor, epoch, state, status, headers, body, retention)
              ORDER BY s.id) u
 CROSS JOIN LATERAL (SELECT o.id, o.realm, o.key, o.operation, o.resource, o.fingerprint,
                            o.executor_url, o.attempt, o.takeovers, o.created_at
                       FROM probate.records o
                      WHERE o.id = u.id AND o.executor_id = u.executor AND o.epoch = u.epoch
                        AND o.state IS NOT DISTINCT FROM 'in_progress'
                        FOR UPDATE) l
    ON CONFLICT (id) DO UPDATE
   SET state = excluded.state, status = excluded.status, headers = excluded.headers, body = excluded.body,
       finalized_at = excluded.finalized_at, expires_at = excluded.expires_at
 WHERE r.executor_id = excluded.executor_id AND r.epoch = excluded.epoch AND r.state = 'in_progress'
RETURNING r.id`

// settledMany reads, of records, who wrote them last and how: a write that
// changed nothing may have landed before, its reply lost.
const settledMany = `
SELECT r.id, r.state, r.executor_id, r.epoch
  FROM unnest((SELECT $1::bytea[])) AS u (id)
 CROSS JOIN LATERAL (SELECT o.id, o.state, o.executor_id, o.epoch
                       FROM probate.records o WHERE o.id = u.id LIMIT 1) r`

// takeOver moves a record that is still the dead executor's to an active one.
// It holds if the dead one is terminal, is the taker itself, or signed that it
// is not running the record. There is no time in it, so no race is left.
const takeOver = `
UPDATE probate.records r
   SET executor_id = m.id, executor_url = m.url, epoch = r.epoch + 1,
       attempt = $2::bytea, takeovers = r.takeovers + 1
  FROM (SELECT e.id, e.url
          FROM probate.executors e
         WHERE e.id = $1::uuid AND e.state = 'active'
           FOR KEY SHARE) m
 WHERE r.id = $3::bytea AND r.executor_id = $4::uuid AND r.epoch = $5::bigint
   AND r.state IS NOT DISTINCT FROM 'in_progress'
   AND ($6::boolean OR $4::uuid = $1::uuid
        OR EXISTS (SELECT 1 FROM probate.executors d WHERE d.id = $4::uuid AND d.state IN ('fenced', 'gone')))
RETURNING ` + recordColumns

// claimUnknown moves a record whose outcome is unknown, and whose epoch is the
// one that was read, to an active executor.
const claimUnknown = `
UPDATE probate.records r
   SET state = 'in_progress', executor_id = m.id, executor_url = m.url, epoch = r.epoch + 1,
       attempt = $2::bytea, finalized_at = NULL, expires_at = NULL
  FROM (SELECT e.id, e.url
          FROM probate.executors e
         WHERE e.id = $1::uuid AND e.state = 'active'
           FOR KEY SHARE) m
 WHERE r.id = $3::bytea AND r.epoch = $4::bigint
   AND r.state IS NOT DISTINCT FROM 'unknown'
RETURNING ` + recordColumns
