package postgres

// The statements that look for rows. They are rare and are planned anew each
// time, so that no plan outlives the table's size it was made for; each goes
// through an index and stops after a bounded number of rows. Their WHERE says
// now(), which an index can use, and what they find is decided by another
// statement, or again in their own, by clock_timestamp().

// inProgress reads an executor's records in progress after an id.
const inProgress = `
SELECT` + recordColumns + `
  FROM probate.records r
 WHERE r.state = 'in_progress' AND r.executor_id = $1::uuid AND r.id > $2::bytea
 ORDER BY r.id
 LIMIT $3`

// orphans reads terminal executors' records in progress after an id: of each
// executor at most a page.
const orphans = `
SELECT` + recordColumns + `
  FROM probate.executors e
 CROSS JOIN LATERAL (SELECT` + recordColumns + `
                       FROM probate.records r
                      WHERE r.state = 'in_progress' AND r.executor_id = e.id AND r.id > $1::bytea
                      ORDER BY r.id
                      LIMIT $2) r
 WHERE e.state IN ('fenced', 'gone')
 ORDER BY r.id
 LIMIT $2`

// purge deletes records whose retention and grace have passed. The condition
// stands twice: inside it finds and locks rows, passing over those that
// somebody holds; outside it decides, because a row may have been claimed anew
// between the two, and must then stay. The ids are an array, so that they are
// found once: as a subquery that is joined they can be found again for every
// row, each time others, and the limit is none. IS DISTINCT FROM is "<>" that
// the partial index on what expires does not answer: the rows come by their id.
const purge = `
DELETE FROM probate.records r
 WHERE r.id = ANY (ARRAY(SELECT o.id
                           FROM probate.records o
                          WHERE o.state <> 'in_progress'
                            AND o.expires_at < now() - $1::bigint * interval '1 microsecond'
                          ORDER BY o.expires_at
                          LIMIT $2
                            FOR UPDATE SKIP LOCKED))
   AND r.state IS DISTINCT FROM 'in_progress'
   AND r.expires_at < clock_timestamp() - $1::bigint * interval '1 microsecond'`

// listColumns are a record's without request and body.
const listColumns = `
       r.id, r.realm, r.key, r.operation, r.resource, r.fingerprint,
       r.state, r.executor_id, r.executor_url, r.epoch, r.attempt, r.takeovers,
       r.status, r.headers, r.created_at, r.finalized_at, r.expires_at`

// A listing examines at most $2 rows after $1, in order of id, and returns
// those that match, with the number and the last of the rows examined. There
// are three ways to the rows: all, by the primary key; unknown ones, and those
// in progress, by the partial indexes that hold nothing else.
const (
	listHead = `
WITH examined AS MATERIALIZED (`
	listAll = `
SELECT` + listColumns + `
  FROM probate.records r
 WHERE r.id > $1::bytea
 ORDER BY r.id
 LIMIT $2`
	listUnknown = `
SELECT` + listColumns + `
  FROM probate.records r
 WHERE r.id > $1::bytea AND r.state = 'unknown'
 ORDER BY r.id
 LIMIT $2`
	listInProgress = `
SELECT` + listColumns + `
  FROM probate.executors e
 CROSS JOIN LATERAL (SELECT` + listColumns + `
                       FROM probate.records r
                      WHERE r.state = 'in_progress' AND r.executor_id = e.id AND r.id > $1::bytea
                      ORDER BY r.id
                      LIMIT $2) r
 WHERE $8::uuid IS NULL OR e.id = $8::uuid
 ORDER BY r.id
 LIMIT $2`
	listTail = `
), matching AS (
SELECT` + listColumns + `
  FROM examined r
 WHERE ($4::bytea IS NULL OR r.realm = $4::bytea)
   AND ($5::bytea IS NULL OR r.key = $5::bytea)
   AND ($6::bytea IS NULL OR r.operation = $6::bytea)
   AND ($7::text IS NULL OR r.state = $7::text)
   AND ($8::uuid IS NULL OR r.executor_id = $8::uuid)
   AND ($9::bigint IS NULL OR r.created_at <= now() - $9::bigint * interval '1 microsecond')
 ORDER BY r.id
 LIMIT $3
)
SELECT b.examined, b.last,` + listColumns + `
  FROM (SELECT (SELECT count(*) FROM examined) AS examined,
               (SELECT x.id FROM examined x ORDER BY x.id DESC LIMIT 1) AS last) b
  LEFT JOIN matching r ON true
 ORDER BY r.id`
)
