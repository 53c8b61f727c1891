package sqlite

// Every SQL text of this package, under the names that records/postgres uses
// too. Parameters are numbered; the comment above a statement says what each
// is. Times and durations are microseconds, and ?1 is the clock, read after
// the write lock was won, wherever a statement decides by time.

// claimable: released, or remembered for its retention and the grace. Nothing
// else may be claimed anew. ?2 is the clock minus the grace.
const claimable = `(r.state = 'released' OR (r.state IN ('finalized', 'unknown') AND r.expires_at < ?2))`

// reserve decides who owns a key. The claimant must be active when the claim
// lands, and a row that stands is left alone unless it is claimable. No row
// returned: one of the two did not hold.
//
// ?3 id, ?4 realm, ?5 key, ?6 operation, ?7 resource, ?8 fingerprint,
// ?9 claimant, ?10 attempt, ?11 request.
const reserve = `
INSERT INTO records AS r (id, state, executor_id, executor_url, epoch, attempt, takeovers, created_at,
       fingerprint, realm, key, operation, resource, request)
SELECT ?3, 'in_progress', m.id, m.url, ?1, ?10, 0, ?1, ?8, ?4, ?5, ?6, ?7, ?11
  FROM executors m
 WHERE m.id = ?9
   AND m.state = 'active'
    ON CONFLICT (id) DO UPDATE
   SET state = 'in_progress', executor_id = excluded.executor_id, executor_url = excluded.executor_url,
       epoch = r.epoch + 1, attempt = excluded.attempt, takeovers = 0, created_at = excluded.created_at,
       finalized_at = NULL, expires_at = NULL, status = NULL, headers = NULL, body = NULL,
       fingerprint = excluded.fingerprint, realm = excluded.realm, key = excluded.key,
       operation = excluded.operation, resource = excluded.resource, request = excluded.request
 WHERE ` + claimable + `
RETURNING epoch, executor_url`

// recordColumns without what a caller of a listing does not want.
const recordColumns = `r.id, r.state, r.executor_id, r.executor_url, r.epoch, r.attempt, r.takeovers,
       r.created_at, r.finalized_at, r.expires_at, r.fingerprint, r.realm, r.key, r.operation, r.resource`

const executorColumns = `id, slot, url, public_key, policy, state, beat, heartbeat_at, lease_ttl, lease_since,
       attested_at, fenced_at, fenced_by, fenced_reason`

// load reads a record and the executor it names, at one moment. ?1 id.
const load = `
SELECT ` + recordColumns + `, r.status, r.headers, r.request, r.body,
       e.id AS "executor.id", e.slot AS "executor.slot", e.url AS "executor.url",
       e.public_key AS "executor.public_key", e.policy AS "executor.policy", e.state AS "executor.state",
       e.beat AS "executor.beat", e.heartbeat_at AS "executor.heartbeat_at", e.lease_ttl AS "executor.lease_ttl",
       e.lease_since AS "executor.lease_since", e.attested_at AS "executor.attested_at",
       e.fenced_at AS "executor.fenced_at", e.fenced_by AS "executor.fenced_by",
       e.fenced_reason AS "executor.fenced_reason"
  FROM records r
  LEFT JOIN executors e ON e.id = r.executor_id
 WHERE r.id = ?1`

// takeOver moves a record in progress to another executor. No time is in it:
// the taker is active, the record is still the predecessor's at that epoch,
// and the predecessor cannot write any more, or said so itself.
//
// ?1 taker, ?2 attempt, ?3 id, ?4 predecessor, ?5 its epoch, ?6 whether it
// signed that it is not running the record.
const takeOver = `
UPDATE records AS r
   SET executor_id = m.id, executor_url = m.url, epoch = r.epoch + 1, attempt = ?2, takeovers = r.takeovers + 1
  FROM executors m
 WHERE m.id = ?1
   AND m.state = 'active'
   AND r.id = ?3
   AND r.executor_id = ?4
   AND r.epoch = ?5
   AND r.state = 'in_progress'
   AND (?6 OR ?4 = ?1 OR EXISTS (SELECT 1 FROM executors p WHERE p.id = ?4 AND p.state IN ('fenced', 'gone')))`

// claimUnknown takes a record of unknown outcome for a reconciler.
//
// ?1 claimant, ?2 attempt, ?3 id, ?4 epoch.
const claimUnknown = `
UPDATE records AS r
   SET state = 'in_progress', executor_id = m.id, executor_url = m.url, epoch = r.epoch + 1, attempt = ?2,
       finalized_at = NULL, expires_at = NULL
  FROM executors m
 WHERE m.id = ?1
   AND m.state = 'active'
   AND r.id = ?3
   AND r.epoch = ?4
   AND r.state = 'unknown'`

// held is the fence of every write by an owner: this executor, at this epoch,
// still in progress. ?2 id, ?3 executor, ?4 epoch.
const held = `id = ?2
   AND executor_id = ?3
   AND epoch = ?4
   AND state = 'in_progress'`

// finalize stores a response. ?5 end of retention, ?6 status, ?7 headers,
// ?8 body.
const finalize = `
UPDATE records
   SET state = 'finalized', finalized_at = ?1, expires_at = ?5, status = ?6, headers = ?7, body = ?8
 WHERE ` + held

// release frees a key; the row stays for the grace alone.
const release = `
UPDATE records
   SET state = 'released', finalized_at = ?1, expires_at = ?1
 WHERE ` + held

// markUnknown gives up on an outcome. ?5 end of retention.
const markUnknown = `
UPDATE records
   SET state = 'unknown', finalized_at = ?1, expires_at = ?5
 WHERE ` + held

// landed tells a repeat of an owner's write that has landed before from one
// that was fenced. ?1 id, ?2 executor, ?3 epoch, ?4 the state it leads to.
const landed = `
SELECT 1
  FROM records
 WHERE id = ?1
   AND executor_id = ?2
   AND epoch = ?3
   AND state = ?4`

// inProgress reads what an executor has in progress, off the partial index.
//
// ?1 executor, ?2 after this id, ?3 at most so many.
const inProgress = `
SELECT ` + recordColumns + `, r.request
  FROM records r
 WHERE r.executor_id = ?1
   AND r.state = 'in_progress'
   AND r.id > ?2
 ORDER BY r.id
 LIMIT ?3`

// orphans reads what terminal executors have in progress. It steps from holder
// to holder along the partial index and takes at most a page from each, so it
// examines neither the table nor executors without such records.
//
// ?1 after this id, ?2 at most so many.
const orphans = `
WITH RECURSIVE holder (id) AS (
    SELECT min(executor_id) FROM records WHERE state = 'in_progress'
     UNION ALL
    SELECT (SELECT min(n.executor_id) FROM records n WHERE n.state = 'in_progress' AND n.executor_id > holder.id)
      FROM holder
     WHERE holder.id IS NOT NULL
)
SELECT ` + recordColumns + `, r.request
  FROM holder
  JOIN executors e ON e.id = holder.id AND e.state IN ('fenced', 'gone')
  JOIN records r ON r.id IN (
       SELECT p.id
         FROM records p
        WHERE p.executor_id = e.id
          AND p.state = 'in_progress'
          AND p.id > ?1
        ORDER BY p.id
        LIMIT ?2)
 ORDER BY r.id
 LIMIT ?2`

// listBound finds the last id that a page may examine: the ?2'th after ?1.
// No row: fewer are left.
const listBound = `
SELECT id
  FROM records
 WHERE id > ?1
 ORDER BY id
 LIMIT 1
OFFSET ?2 - 1`

// list reads the rows after ?1, up to and with ?2, that pass the filters.
// Null filters pass everything.
//
// ?3 realm, ?4 key, ?5 operation, ?6 state, ?7 executor, ?8 created no later
// than this, ?9 at most so many.
const list = `
SELECT ` + recordColumns + `, r.status, r.headers
  FROM records r
 WHERE r.id > ?1
   AND r.id <= ?2
   AND (?3 IS NULL OR r.realm = ?3)
   AND (?4 IS NULL OR r.key = ?4)
   AND (?5 IS NULL OR r.operation = ?5)
   AND (?6 IS NULL OR r.state = ?6)
   AND (?7 IS NULL OR r.executor_id = ?7)
   AND (?8 IS NULL OR r.created_at <= ?8)
 ORDER BY r.id
 LIMIT ?9`

// purge deletes what nobody has to remember. A claim has no expiry, as a
// constraint of the table demands, and so is never older than any time; it
// needs no second look either, since nobody writes between the scan and the
// delete. ?1 is the clock minus the grace, ?2 at most so many.
const purge = `
DELETE FROM records
 WHERE rowid IN (SELECT rowid FROM records WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)`
