package postgres

// The statements about events, and those of operators that leave one. Both
// number their events from the fleet row and hold it until they have committed,
// so the order of numbers is the order of commits. An operator's transaction
// queues on that row before it touches a record, as fences do before they touch
// an executor: nobody holds a record while he waits for the row.

// noteEvents writes events and numbers them. It is one statement, also where it
// is a transaction of its own, so nothing queues behind it for longer than it
// runs. Its update takes the counter as the one before in the queue left it.
const noteEvents = `
WITH f AS (
UPDATE probate.fleet
   SET events = events + $1::bigint
RETURNING events - $1::bigint AS before
)
INSERT INTO probate.events (n, at, kind, record_id, epoch, executor_id, actor, reason, was, became)
SELECT f.before + u.n, clock_timestamp() - u.ago * interval '1 microsecond',
       u.kind, u.record_id, u.epoch, u.executor_id, u.actor, u.reason, u.was, u.became
  FROM f
 CROSS JOIN unnest($2::bigint[], $3::text[], $4::bytea[], $5::bigint[], $6::uuid[],
                   $7::text[], $8::text[], $9::text[], $10::text[])
       WITH ORDINALITY AS u (ago, kind, record_id, epoch, executor_id, actor, reason, was, became, n)`

// eventColumns are the columns of an event v.
const eventColumns = `
       v.n, v.at, v.kind, v.record_id, v.epoch, v.executor_id, v.actor, v.reason, v.was, v.became`

// A page of events examines at most $2 after $1, in order, and returns those
// that match, with the number and the last of those examined. The ways to them
// are the primary key and the indexes by record and by executor.
const (
	eventsHead = `
WITH examined AS MATERIALIZED (
SELECT` + eventColumns + `
  FROM probate.events v
 WHERE v.n > $1::bigint`
	eventsOfRecord = `
   AND v.record_id = $4::bytea`
	eventsOfExecutor = `
   AND v.executor_id = $5::uuid`
	eventsTail = `
 ORDER BY v.n
 LIMIT $2
), matching AS (
SELECT` + eventColumns + `
  FROM examined v
 WHERE ($4::bytea IS NULL OR v.record_id = $4::bytea)
   AND ($5::uuid IS NULL OR v.executor_id = $5::uuid)
   AND ($6::text IS NULL OR v.kind = $6::text)
 ORDER BY v.n
 LIMIT $3
)
SELECT b.examined, coalesce(b.last, $1::bigint) AS last,` + eventColumns + `
  FROM (SELECT count(*) AS examined, max(x.n) AS last FROM examined x) b
  LEFT JOIN matching v ON true
 ORDER BY v.n`
)

// purgeEvents deletes events that are older than an age, the oldest first. An
// event does not change, so what was found is what is deleted.
const purgeEvents = `
DELETE FROM probate.events v
 WHERE v.n = ANY (ARRAY(SELECT o.n
                          FROM probate.events o
                         WHERE o.at < now() - $1::bigint * interval '1 microsecond'
                         ORDER BY o.at
                         LIMIT $2
                           FOR UPDATE SKIP LOCKED))`

// intervene says which records an operator may end, and finds the one meant: at
// the epoch that the person saw, unknown, or in progress of an executor that
// can never act again. The row is locked, so what it was is what the update
// below changes.
const (
	interveneHead = `
  FROM (SELECT clock_timestamp() AS now) c
 CROSS JOIN (SELECT o.id, o.state
               FROM probate.records o
              WHERE o.id = $1::bytea
                FOR UPDATE) was
 WHERE r.id = was.id AND r.epoch = $2::bigint`
	mayResolve = `r.state IS NOT DISTINCT FROM 'unknown'`
	mayRelease = `(` + mayResolve + ` OR r.state IS NOT DISTINCT FROM 'in_progress'
        AND EXISTS (SELECT 1 FROM probate.executors d
                     WHERE d.id = r.executor_id AND d.state IN ('fenced', 'gone')))`
	interveneTail = `
RETURNING was.state AS was,` + recordColumns
)

// releaseByOperator frees a key, at the next epoch.
const releaseByOperator = `
UPDATE probate.records r
   SET state = 'released', epoch = r.epoch + 1, attempt = $3::bytea,
       finalized_at = c.now, expires_at = c.now` + interveneHead + `
   AND ` + mayRelease + interveneTail

// resolveByOperator ends an unknown record with a response, at the next epoch.
// Of one that was erased only the status is stored: who erases again would not
// find more. $8: no headers.
const resolveByOperator = `
UPDATE probate.records r
   SET state = 'finalized', epoch = r.epoch + 1, attempt = $3::bytea, status = $4::smallint,
       headers = CASE WHEN r.key = '' THEN $8::bytea ELSE $5::bytea END,
       body = CASE WHEN r.key <> '' THEN $6::bytea END,
       finalized_at = c.now, expires_at = c.now + $7::bigint * interval '1 microsecond'` + interveneHead + `
   AND ` + mayResolve + interveneTail

// selectRecord reads one record.
const selectRecord = `
SELECT` + recordColumns + `
  FROM probate.records r
 WHERE r.id = $1::bytea`

// examineRealm reads the ids and keys of the records of a realm among $3 after
// an id, and the number and the last of the records examined. Those that were
// erased have no key that would fit their id.
const examineRealm = `
WITH examined AS MATERIALIZED (
SELECT r.id, r.realm, r.key
  FROM probate.records r
 WHERE r.id > $1::bytea
 ORDER BY r.id
 LIMIT $3
)
SELECT b.examined, b.last, x.id, x.key
  FROM (SELECT (SELECT count(*) FROM examined) AS examined,
               (SELECT e.id FROM examined e ORDER BY e.id DESC LIMIT 1) AS last) b
  LEFT JOIN examined x ON x.realm = $2::bytea
 ORDER BY x.id`

// eraseRecords blanks records, locked in order of id, that are not in progress
// now, and counts those that are. What a record is now is what its lock has
// found: the update itself begins at the version that stood there before the
// statement waited, and would pass over one that has come to its end meanwhile.
// A record of the same id is always the same principal's. Headers are blanked to
// the stored form of none.
const eraseRecords = `
WITH l AS MATERIALIZED (
SELECT o.id, o.state IS NOT DISTINCT FROM 'in_progress' AS running,
       (o.key <> '' OR o.resource <> '' OR o.request IS NOT NULL OR o.body IS NOT NULL OR o.headers <> $2::bytea) AS says
  FROM probate.records o
 WHERE o.id = ANY ($1::bytea[])
 ORDER BY o.id
   FOR UPDATE
), erased AS (
UPDATE probate.records r
   SET key = '', resource = '', request = NULL, body = NULL,
       headers = CASE WHEN r.headers IS NOT NULL THEN $2::bytea END
 WHERE r.id = ANY (ARRAY(SELECT l.id FROM l WHERE l.says AND NOT l.running))
RETURNING 1
)
SELECT (SELECT count(*) FROM erased) AS erased,
       (SELECT count(*) FROM l WHERE l.running) AS running`

// countErasure tells all nodes, by their next heartbeat, that what they have
// read may have been erased.
const countErasure = `
UPDATE probate.fleet
   SET erasures = erasures + 1`
