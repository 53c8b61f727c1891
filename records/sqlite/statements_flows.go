package sqlite

// The statements about data flows, under the names that records/postgres uses
// too. Nobody writes between two statements of one transaction, so a fence that
// was found to hold does so for those that follow it.

const flowColumns = `f.id, f.record_id, f.fingerprint, f.moves, f.state, f.version, f.attempt, f.wanted, f.wanted_by, f.reason,
       f.profile, f.dataset, f.reply_to, f.attempts, f.executor_id, f.epoch,
       f.bytes, f.total, f.sha256, f.created_at, f.updated_at, f.ended_at`

const allFlowColumns = flowColumns + `, f.message, f.tokens, f.checkpoint`

// runningFlow is a flow whose bytes are to move.
const runningFlow = `f.state IN ('STARTING', 'STARTED')`

// awaitedFlow is one that somebody should be at, as flows_awaited has it.
const awaitedFlow = `(f.moves AND ` + runningFlow + ` OR f.state = 'PREPARING')`

// createFlow adds a flow. Zero rows: one of that id stands there.
//
// ?1 clock, ?2 id, ?3 record, ?4 fingerprint, ?5 moves, ?6 state, ?7 attempt,
// ?8 profile, ?9 dataset, ?10 message, ?11 reply to, ?12 tokens.
const createFlow = `
INSERT INTO flows (id, record_id, fingerprint, moves, state, version, attempt, profile, dataset, message, reply_to, tokens,
       created_at, updated_at)
VALUES (?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, ?10, ?11, ?12, ?1, ?1)
    ON CONFLICT (id) DO NOTHING`

// addCallback puts a message into the outbox. ?1 clock, ?2 flow, ?3 event,
// ?4 url, ?5 body.
const addCallback = `
INSERT INTO flow_callbacks (flow_id, version, event, url, body, created_at, due_at)
SELECT f.id, f.version, ?3, ?4, ?5, ?1, ?1
  FROM flows f
 WHERE f.id = ?2`

// callbackColumns are those of the oldest callback c of a flow, or nulls.
const callbackColumns = `c.flow_id AS c_flow_id, c.version AS c_version, c.event AS c_event, c.url AS c_url, c.body AS c_body,
       c.tries AS c_tries, c.reason AS c_reason, c.created_at AS c_created_at`

// loadFlow reads a flow, who has its record, and the oldest callback that
// waits. ?1 id.
const loadFlow = `
SELECT ` + allFlowColumns + `,
       r.state AS r_state, r.executor_id AS r_executor_id, r.epoch AS r_epoch, r.executor_url AS r_executor_url,
       ` + callbackColumns + `
  FROM flows f
  LEFT JOIN records r ON r.id = f.record_id
  LEFT JOIN flow_callbacks c ON c.flow_id = f.id
        AND c.version = (SELECT min(o.version) FROM flow_callbacks o WHERE o.flow_id = f.id)
 WHERE f.id = ?1`

// heldRecord finds the record of a flow in progress under a fence. ?1 id,
// ?2 executor, ?3 epoch.
const heldRecord = `
SELECT 1
  FROM flows f
  JOIN records r ON r.id = f.record_id
 WHERE f.id = ?1
   AND r.executor_id = ?2
   AND r.epoch = ?3
   AND r.state = 'in_progress'`

// busyRecord finds the record of a flow in progress by anybody. ?1 id.
const busyRecord = `
SELECT 1
  FROM flows f
  JOIN records r ON r.id = f.record_id
 WHERE f.id = ?1
   AND r.state = 'in_progress'`

// moveFlow moves a flow that may come from where it stands, whoever does it.
// That it is to end is taken back by its end alone; an execution that begins
// sees it.
//
// ?1 clock, ?2 id, ?3 state, ?4 the states it may come from, as a JSON array,
// ?5 version or null, ?6 attempt, ?7 reason, ?8 whether an execution begins,
// ?9 its executor, ?10 its epoch, ?11 message, ?12 reply to, ?13 tokens,
// ?14 bytes, ?15 total, ?16 sha256, ?17 checkpoint, where null leaves what was;
// ?18 whether a record moves its bytes from here on.
const moveFlow = `
UPDATE flows AS f
   SET state = ?3, version = f.version + 1, attempt = ?6, moves = f.moves OR ?18,
       wanted = CASE WHEN ?8 THEN f.wanted ELSE '' END,
       wanted_by = CASE WHEN ?8 THEN f.wanted_by ELSE '' END,
       reason = CASE WHEN ?8 THEN f.reason ELSE ?7 END,
       attempts = f.attempts + ?8,
       executor_id = CASE WHEN ?8 THEN ?9 ELSE f.executor_id END,
       epoch = CASE WHEN ?8 THEN ?10 ELSE f.epoch END,
       message = coalesce(?11, f.message), reply_to = coalesce(?12, f.reply_to), tokens = coalesce(?13, f.tokens),
       bytes = coalesce(?14, f.bytes), total = coalesce(?15, f.total),
       sha256 = CASE WHEN ?14 IS NULL THEN f.sha256 ELSE ?16 END,
       checkpoint = CASE WHEN ?14 IS NULL THEN f.checkpoint ELSE ?17 END,
       updated_at = ?1,
       ended_at = CASE WHEN ?3 IN ('COMPLETED', 'TERMINATED') THEN ?1 END
 WHERE f.id = ?2
   AND f.attempt <> ?6
   AND f.state IN (SELECT value FROM json_each(?4))
   AND (f.wanted <> 'TERMINATED' OR ?8 OR ?3 IN ('COMPLETED', 'TERMINATED'))
   AND (?5 IS NULL OR f.version = ?5)`

// wantFlow notes what is wanted of a running flow. That it is to end is not
// taken back. What is wanted already touches nothing: who waits for it says so
// again and again, and a flow that nobody has must come to be a stray. ?1 clock,
// ?2 id, ?3 what, ?4 why, ?5 who asks.
const wantFlow = `
UPDATE flows AS f
   SET wanted = CASE WHEN f.wanted = 'TERMINATED' THEN f.wanted ELSE ?3 END,
       wanted_by = CASE WHEN f.wanted = 'TERMINATED' THEN f.wanted_by ELSE ?5 END,
       reason = CASE WHEN f.wanted = 'TERMINATED' THEN f.reason ELSE ?4 END,
       updated_at = CASE WHEN f.wanted IN ('TERMINATED', ?3) THEN f.updated_at ELSE ?1 END
 WHERE f.id = ?2
   AND f.moves
   AND ` + runningFlow

// noteFlow writes how far a flow has come. ?1 clock, ?2 id, ?3 bytes, ?4 total,
// ?5 checkpoint.
const noteFlow = `
UPDATE flows AS f
   SET bytes = ?3, total = ?4, checkpoint = ?5, updated_at = ?1
 WHERE f.id = ?2
   AND ` + runningFlow + `
RETURNING wanted`

// holdsFlow finds a running flow of which nothing else is wanted, under its
// fence. ?1 to ?3 as heldRecord.
const holdsFlow = heldRecord + `
   AND f.wanted = ''
   AND ` + runningFlow

// strayFlows reads running flows that no live executor has in progress, and
// those that are being prepared, of which nobody has a record.
//
// ?1 clock, ?2 after this id, ?3 untouched since, ?4 at most so many.
const strayFlows = `
SELECT ` + allFlowColumns + `
  FROM flows f
  LEFT JOIN records r ON r.id = f.record_id AND r.state = 'in_progress'
  LEFT JOIN executors e ON e.id = r.executor_id
 WHERE ` + awaitedFlow + `
   AND f.id > ?2
   AND f.updated_at <= ?3
   AND (e.id IS NULL OR e.state IN ('fenced', 'gone') OR e.heartbeat_at + e.lease_ttl < ?1)
 ORDER BY f.id
 LIMIT ?4`

// listFlows reads a page. ?1 after this id, ?2 state or null, ?3 at most so
// many.
const listFlows = `
SELECT ` + flowColumns + `
  FROM flows f
 WHERE f.id > ?1
   AND (?2 IS NULL OR f.state = ?2)
 ORDER BY f.id
 LIMIT ?3`

// purgeFlows deletes flows that have ended and about which nothing is left to
// be told. ?1 ended before, ?2 at most so many.
const purgeFlows = `
DELETE FROM flows
 WHERE id IN (SELECT f.id
                FROM flows f
               WHERE f.ended_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM flow_callbacks c WHERE c.flow_id = f.id)
               LIMIT ?2)`

// dueCallbacks finds callbacks whose time has come, each flow's oldest only.
// ?1 clock, ?2 at most so many.
const dueCallbacks = `
SELECT ` + callbackColumns + `
  FROM flow_callbacks c
 WHERE c.due_at <= ?1
   AND NOT EXISTS (SELECT 1 FROM flow_callbacks o WHERE o.flow_id = c.flow_id AND o.version < c.version)
 ORDER BY c.due_at
 LIMIT ?2`

// takeCallback keeps a callback from others for a while. ?1 flow, ?2 version,
// ?3 until.
const takeCallback = `
UPDATE flow_callbacks
   SET tries = tries + 1, due_at = ?3
 WHERE flow_id = ?1
   AND version = ?2`

// waitingCallbacks counts callbacks, up to ?1.
const waitingCallbacks = `
SELECT count(*) AS n
  FROM (SELECT 1
          FROM flow_callbacks
         LIMIT ?1)`

// callbackDone removes a callback. ?1 flow, ?2 version.
const callbackDone = `
DELETE FROM flow_callbacks
 WHERE flow_id = ?1
   AND version = ?2`

// callbackFailed puts a callback off. ?1 flow, ?2 version, ?3 until, ?4 why.
const callbackFailed = `
UPDATE flow_callbacks
   SET due_at = ?3, reason = ?4
 WHERE flow_id = ?1
   AND version = ?2`

// flowWrites and flowReads are the statements of the writer and the readers.
var (
	flowWrites = []string{
		createFlow, addCallback, loadFlow, heldRecord, busyRecord, moveFlow, wantFlow, noteFlow, purgeFlows,
		dueCallbacks, takeCallback, callbackDone, callbackFailed,
	}
	flowReads = []string{loadFlow, holdsFlow, strayFlows, listFlows, waitingCallbacks}
)
