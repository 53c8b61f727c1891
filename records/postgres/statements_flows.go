package postgres

// The statements about data flows. A move by the owner locks the record first
// and then the flow, so that no take-over comes in between; a move by anybody
// else compares the version, which every execution that begins raises. Flows
// are few and moves are rare beside requests, so nothing here is batched but
// the notes of progress.

// flowColumns are the columns of a flow f, without what a listing leaves out.
const flowColumns = `
       f.id, f.record_id, f.fingerprint, f.moves, f.state, f.version, f.attempt, f.wanted, f.wanted_by, f.reason,
       f.profile, f.dataset, f.reply_to, f.attempts, f.executor_id, f.epoch,
       f.bytes, f.total, f.sha256, f.created_at, f.updated_at, f.ended_at`

// allFlowColumns are all of them.
const allFlowColumns = flowColumns + `, f.message, f.tokens, f.checkpoint`

// runningFlow is a flow whose bytes are to move.
const runningFlow = `f.state IN ('STARTING', 'STARTED')`

// awaitedFlow is one that somebody should be at, as flows_awaited has it.
const awaitedFlow = `(f.moves AND ` + runningFlow + ` OR f.state = 'PREPARING')`

// createFlow adds a flow, with its callback if there is one. Zero rows: one of
// that id stands there.
//
// $1 id, $2 record, $3 fingerprint, $4 moves, $5 state, $6 attempt, $7 profile,
// $8 dataset, $9 message, $10 reply to, $11 tokens, $12 event or null, $13 its
// url, $14 its body.
const createFlow = `
WITH f AS (
INSERT INTO probate.flows
       (id, record_id, fingerprint, moves, state, version, attempt, profile, dataset,
        message, reply_to, tokens, created_at, updated_at)
SELECT $1::text, $2::bytea, $3::bytea, $4::boolean, $5::text, 1, $6::bytea, $7::text, $8::text,
       $9::bytea, $10::text, $11::bytea, c.now, c.now
  FROM (SELECT clock_timestamp() AS now) c
    ON CONFLICT (id) DO NOTHING
RETURNING *
), told AS (
INSERT INTO probate.flow_callbacks (flow_id, version, event, url, body, created_at, due_at)
SELECT f.id, f.version, $12::text, $13::text, $14::bytea, clock_timestamp(), clock_timestamp()
  FROM f
 WHERE $12::text IS NOT NULL
)
SELECT` + allFlowColumns + `
  FROM f`

// loadFlow reads a flow, who has its record, and the oldest callback that
// waits. $1 id.
const loadFlow = `
SELECT` + allFlowColumns + `,
       r.state AS r_state, r.executor_id AS r_executor_id, r.epoch AS r_epoch, r.executor_url AS r_executor_url,
       c.flow_id AS c_flow_id, c.version AS c_version, c.event AS c_event, c.url AS c_url, c.body AS c_body,
       c.tries AS c_tries, c.reason AS c_reason, c.created_at AS c_created_at
  FROM probate.flows f
  LEFT JOIN probate.records r ON r.id = f.record_id
  LEFT JOIN LATERAL (
       SELECT *
         FROM probate.flow_callbacks o
        WHERE o.flow_id = f.id
        ORDER BY o.version
        LIMIT 1) c ON true
 WHERE f.id = $1::text`

// heldRecord is the record of flow $1, while executor $2 has it in progress at
// epoch $3. The lock keeps it so until the statement has committed: a take-over
// waits for it.
const heldRecord = `
SELECT r.id
  FROM probate.records r
 WHERE r.id = (SELECT o.record_id FROM probate.flows o WHERE o.id = $1::text)
   AND r.executor_id = $2::uuid
   AND r.epoch = $3::bigint
   AND r.state IS NOT DISTINCT FROM 'in_progress'`

// notToEnd keeps a move from taking back that a flow is to end: only its end
// does that, or an execution that begins and sees it. The numbers are those of
// movedFlow.
const notToEnd = `(f.wanted <> 'TERMINATED' OR $8::boolean OR $4::text IN ('COMPLETED', 'TERMINATED'))`

// movedFlow is what a move sets.
//
// $2 executor and $3 epoch, with $8; $4 state, $5 the states it may come from,
// $6 attempt, $7 reason, $8 whether an execution begins, $9 message, $10 reply
// to, $11 tokens, $12 bytes, $13 total, $14 sha256, $15 checkpoint, where null
// leaves what was; $16 event or null, $17 its url, $18 its body; $19 whether a
// record moves its bytes from here on.
const movedFlow = `
UPDATE probate.flows f
   SET state = $4::text, version = f.version + 1, attempt = $6::bytea, moves = f.moves OR $19::boolean,
       wanted = CASE WHEN $8::boolean THEN f.wanted ELSE '' END,
       wanted_by = CASE WHEN $8::boolean THEN f.wanted_by ELSE '' END,
       reason = CASE WHEN $8::boolean THEN f.reason ELSE $7::text END,
       attempts = f.attempts + CASE WHEN $8::boolean THEN 1 ELSE 0 END,
       executor_id = CASE WHEN $8::boolean THEN $2::uuid ELSE f.executor_id END,
       epoch = CASE WHEN $8::boolean THEN $3::bigint ELSE f.epoch END,
       message = coalesce($9::bytea, f.message), reply_to = coalesce($10::text, f.reply_to),
       tokens = coalesce($11::bytea, f.tokens),
       bytes = coalesce($12::bigint, f.bytes), total = coalesce($13::bigint, f.total),
       sha256 = CASE WHEN $12::bigint IS NULL THEN f.sha256 ELSE $14::bytea END,
       checkpoint = CASE WHEN $12::bigint IS NULL THEN f.checkpoint ELSE $15::bytea END,
       updated_at = clock_timestamp(),
       ended_at = CASE WHEN $4::text IN ('COMPLETED', 'TERMINATED') THEN clock_timestamp() END`

// toldMove puts the callback of a move into the outbox.
const toldMove = `
INSERT INTO probate.flow_callbacks (flow_id, version, event, url, body, created_at, due_at)
SELECT f.id, f.version, $16::text, $17::text, $18::bytea, clock_timestamp(), clock_timestamp()
  FROM f
 WHERE $16::text IS NOT NULL`

// moveHeldFlow is a move by the owner of the flow's record.
const moveHeldFlow = `
WITH held AS MATERIALIZED (` + heldRecord + `
   FOR SHARE
), f AS (` + movedFlow + `
  FROM held
 WHERE f.id = $1::text
   AND f.record_id = held.id
   AND f.attempt <> $6::bytea
   AND f.state = ANY ($5::text[])
   AND ` + notToEnd + `
RETURNING f.*
), told AS (` + toldMove + `
)
SELECT` + allFlowColumns + `
  FROM f`

// moveIdleFlow is a move of a flow whose record nobody has in progress, and
// which stands at version $20.
const moveIdleFlow = `
WITH f AS (` + movedFlow + `
 WHERE f.id = $1::text
   AND f.version = $20::bigint
   AND f.state = ANY ($5::text[])
   AND ` + notToEnd + `
   AND NOT EXISTS (SELECT 1 FROM probate.records r
                    WHERE r.id = f.record_id AND r.state IS NOT DISTINCT FROM 'in_progress' OFFSET 0)
RETURNING f.*
), told AS (` + toldMove + `
)
SELECT` + allFlowColumns + `
  FROM f`

// wantFlow notes what is wanted of a running flow. That it is to end is not
// taken back. What is wanted already touches nothing: who waits for it says so
// again and again, and a flow that nobody has must come to be a stray. $1 id, $2 what, $3 why, $4 who asks.
const wantFlow = `
UPDATE probate.flows f
   SET wanted = CASE WHEN f.wanted = 'TERMINATED' THEN f.wanted ELSE $2::text END,
       wanted_by = CASE WHEN f.wanted = 'TERMINATED' THEN f.wanted_by ELSE $4::text END,
       reason = CASE WHEN f.wanted = 'TERMINATED' THEN f.reason ELSE $3::text END,
       updated_at = CASE WHEN f.wanted IN ('TERMINATED', $2::text) THEN f.updated_at ELSE clock_timestamp() END
 WHERE f.id = $1::text
   AND f.moves
   AND ` + runningFlow + `
RETURNING` + allFlowColumns

// noteFlows writes how far flows have come, each under its fence. Records are
// locked in order of id, as everywhere. It returns the places of those that
// were written.
//
// $1 ids, $2 executors, $3 epochs, $4 bytes, $5 totals, $6 checkpoints.
const noteFlows = `
WITH u AS MATERIALIZED (
SELECT *
  FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
       WITH ORDINALITY AS u (id, executor_id, epoch, bytes, total, checkpoint, n)
), held AS MATERIALIZED (
SELECT r.id, u.n
  FROM u
  JOIN probate.flows o ON o.id = u.id
  JOIN probate.records r ON r.id = o.record_id
 WHERE r.executor_id = u.executor_id
   AND r.epoch = u.epoch
   AND r.state IS NOT DISTINCT FROM 'in_progress'
 ORDER BY r.id
   FOR SHARE OF r
)
UPDATE probate.flows f
   SET bytes = u.bytes, total = u.total, checkpoint = nullif(u.checkpoint, ''::bytea), updated_at = clock_timestamp()
  FROM u
  JOIN held ON held.n = u.n
 WHERE f.id = u.id
   AND ` + runningFlow + `
RETURNING u.n, f.wanted`

// holdsFlow finds a running flow of which nothing else is wanted, under its
// fence. $1 to $3 as heldRecord.
const holdsFlow = `
SELECT f.id
  FROM probate.flows f
 WHERE f.id = $1::text
   AND f.wanted = ''
   AND ` + runningFlow + `
   AND EXISTS (` + heldRecord + `)`

// strayFlows reads running flows that no live executor has in progress, and
// those that are being prepared, of which nobody has a record.
//
// $1 after this id, $2 untouched for so many microseconds, $3 at most so many.
const strayFlows = `
SELECT` + allFlowColumns + `
  FROM probate.flows f
  LEFT JOIN probate.records r ON r.id = f.record_id AND r.state = 'in_progress'
  LEFT JOIN probate.executors e ON e.id = r.executor_id
 WHERE ` + awaitedFlow + `
   AND f.id > $1::text
   AND f.updated_at <= now() - $2::bigint * interval '1 microsecond'
   AND (e.id IS NULL OR e.state IN ('fenced', 'gone') OR e.heartbeat_at < now() - e.lease_ttl)
 ORDER BY f.id
 LIMIT $3`

// listFlows reads a page. $1 after this id, $2 state or null, $3 at most so
// many.
const listFlows = `
SELECT` + flowColumns + `
  FROM probate.flows f
 WHERE f.id > $1::text
   AND ($2::text IS NULL OR f.state = $2::text)
 ORDER BY f.id
 LIMIT $3`

// purgeFlows deletes flows that have ended and about which nothing is left to
// be told. $1 longer ago than so many microseconds, $2 at most so many.
const purgeFlows = `
DELETE FROM probate.flows
 WHERE id IN (SELECT f.id
                FROM probate.flows f
               WHERE f.ended_at < now() - $1::bigint * interval '1 microsecond'
                 AND NOT EXISTS (SELECT 1 FROM probate.flow_callbacks c WHERE c.flow_id = f.id)
               LIMIT $2
                 FOR UPDATE SKIP LOCKED)`

// dueCallbacks takes callbacks, each flow's oldest only, for a while.
//
// $1 the while in microseconds, $2 at most so many.
const dueCallbacks = `
UPDATE probate.flow_callbacks c
   SET tries = c.tries + 1, due_at = clock_timestamp() + $1::bigint * interval '1 microsecond'
  FROM (SELECT d.flow_id, d.version
          FROM probate.flow_callbacks d
         WHERE d.due_at <= clock_timestamp()
           AND NOT EXISTS (SELECT 1 FROM probate.flow_callbacks o WHERE o.flow_id = d.flow_id AND o.version < d.version)
         ORDER BY d.due_at
         LIMIT $2
           FOR UPDATE SKIP LOCKED) x
 WHERE c.flow_id = x.flow_id
   AND c.version = x.version
RETURNING c.flow_id AS c_flow_id, c.version AS c_version, c.event AS c_event, c.url AS c_url, c.body AS c_body,
       c.tries AS c_tries, c.reason AS c_reason, c.created_at AS c_created_at`

// waitingCallbacks counts callbacks, up to $1.
const waitingCallbacks = `
SELECT count(*)
  FROM (SELECT 1
          FROM probate.flow_callbacks
         LIMIT $1) c`

// callbackDone removes a callback. $1 flow, $2 version.
const callbackDone = `
DELETE FROM probate.flow_callbacks
 WHERE flow_id = $1::text
   AND version = $2::bigint`

// callbackFailed puts a callback off. $1 flow, $2 version, $3 for so many
// microseconds, $4 why.
const callbackFailed = `
UPDATE probate.flow_callbacks
   SET due_at = clock_timestamp() + $3::bigint * interval '1 microsecond', reason = $4::text
 WHERE flow_id = $1::text
   AND version = $2::bigint`
