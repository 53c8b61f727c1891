package sqlite

// numberEvents takes the next ?1 numbers. Numbers are never used again, also
// after a purge, so a page that was read stays what it was.
const numberEvents = `
UPDATE fleet
   SET events = events + ?1
RETURNING events - ?1`

// noteEvent writes an event. ?1 number, ?2 when, ?3 kind, ?4 record, ?5 epoch,
// ?6 executor, ?7 actor, ?8 reason, ?9 state before, ?10 state after.
const noteEvent = `
INSERT INTO events (n, at, kind, record_id, epoch, executor_id, actor, reason, was, became)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`

const eventColumns = `v.n, v.at, v.kind, v.record_id, v.epoch, v.executor_id, v.actor, v.reason, v.was, v.became`

// A page of events has three ways to them: all, by the primary key, and by the
// indexes on the record and the executor. Of each the first finds the last
// event that a page may examine, the ?2'th after ?1 (no row: fewer are left),
// and the second reads those after ?1, up to and with ?2, that pass the filters.
// Null filters pass everything.
//
// ?3 record, ?4 executor, ?5 kind, ?6 at most so many.
const (
	eventsBound = `
SELECT v.n
  FROM events v
 WHERE v.n > ?1` + eventsBoundTail
	eventsBoundOfRecord = `
SELECT v.n
  FROM events v
 WHERE v.record_id = ?3
   AND v.n > ?1` + eventsBoundTail
	eventsBoundOfExecutor = `
SELECT v.n
  FROM events v
 WHERE v.executor_id = ?3
   AND v.n > ?1` + eventsBoundTail
	eventsBoundTail = `
 ORDER BY v.n
 LIMIT 1
OFFSET ?2 - 1`

	readEvents = `
SELECT ` + eventColumns + `
  FROM events v
 WHERE v.n > ?1` + eventsTail
	eventsOfRecord = `
SELECT ` + eventColumns + `
  FROM events v
 WHERE v.record_id = ?3
   AND v.n > ?1` + eventsTail
	eventsOfExecutor = `
SELECT ` + eventColumns + `
  FROM events v
 WHERE v.executor_id = ?4
   AND v.n > ?1` + eventsTail
	eventsTail = `
   AND v.n <= ?2
   AND (?3 IS NULL OR v.record_id = ?3)
   AND (?4 IS NULL OR v.executor_id = ?4)
   AND (?5 IS NULL OR v.kind = ?5)
 ORDER BY v.n
 LIMIT ?6`
)

// purgeEvents deletes events that happened before ?1, the oldest first, at most
// ?2.
const purgeEvents = `
DELETE FROM events
 WHERE n IN (SELECT n FROM events WHERE at < ?1 ORDER BY at LIMIT ?2)`

// Which records an operator may end: at the epoch that the person saw, unknown,
// or in progress of an executor that can never act again. ?2 id, ?3 epoch.
const (
	intervened = `id = ?2
   AND epoch = ?3`
	mayResolve = `state = 'unknown'`
	mayRelease = `(` + mayResolve + ` OR (state = 'in_progress'
       AND EXISTS (SELECT 1 FROM executors d WHERE d.id = records.executor_id AND d.state IN ('fenced', 'gone'))))`
)

// releaseByOperator frees a key, at the next epoch. ?4 mark.
const releaseByOperator = `
UPDATE records
   SET state = 'released', epoch = epoch + 1, attempt = ?4, finalized_at = ?1, expires_at = ?1
 WHERE ` + intervened + `
   AND ` + mayRelease

// resolveByOperator ends an unknown record with a response, at the next epoch.
// Of one that was erased only the status is stored: who erases again would not
// find more. ?4 mark, ?5 end of retention, ?6 status, ?7 headers, ?8 body, ?9 no
// headers.
const resolveByOperator = `
UPDATE records
   SET state = 'finalized', epoch = epoch + 1, attempt = ?4, finalized_at = ?1, expires_at = ?5,
       status = ?6, headers = CASE WHEN key = x'' THEN ?9 ELSE ?7 END, body = CASE WHEN key <> x'' THEN ?8 END
 WHERE ` + intervened + `
   AND ` + mayResolve

// examineRealm reads the ids and keys of a realm's records after ?1, up to and
// with ?2. Those that were erased have no key that would fit their id. ?3 realm.
const examineRealm = `
SELECT r.id, r.key
  FROM records r
 WHERE r.id > ?1
   AND r.id <= ?2
   AND r.realm = ?3
 ORDER BY r.id`

// eraseRecord blanks a record that is not in progress, unless it is blank.
// ?1 id, ?2 the stored form of no headers.
const eraseRecord = `
UPDATE records
   SET key = x'', resource = x'', request = NULL, body = NULL,
       headers = CASE WHEN headers IS NOT NULL THEN ?2 END
 WHERE id = ?1
   AND state <> 'in_progress'
   AND (key <> x'' OR resource <> x'' OR request IS NOT NULL OR body IS NOT NULL OR headers <> ?2)`

// isInProgress tells why a record was not blanked. ?1 id.
const isInProgress = `
SELECT 1
  FROM records
 WHERE id = ?1
   AND state = 'in_progress'`

// countErasure tells every process, by its next heartbeat, that what it has
// read may have been erased.
const countErasure = `
UPDATE fleet
   SET erasures = erasures + 1`
