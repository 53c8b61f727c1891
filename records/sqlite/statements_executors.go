package sqlite

// selectFleet reads the cluster row.
const selectFleet = `
SELECT cluster, schema, min_binary
  FROM fleet`

// rekeyFleet gives the store another cluster id, ?1, if it now has ?2.
const rekeyFleet = `
UPDATE fleet
   SET cluster = ?1
 WHERE cluster = ?2`

// foreignExecutor finds an executor of another host that may still be alive.
//
// ?1 clock, ?2 this host's boot id.
const foreignExecutor = `
SELECT slot
  FROM executors
 WHERE state IN ('active', 'draining')
   AND boot_id <> ?2
   AND heartbeat_at >= ?1 - lease_ttl
 LIMIT 1`

// fenceReplaced fences the boot that a registration replaces: the one that was
// probed, without a beat since, as far as its policy allows.
//
// ?2 the new boot, ?3 slot, ?4 the boot it replaces, ?5 the beat it had.
const fenceReplaced = `
UPDATE executors AS d
   SET state = 'fenced', fenced_at = ?1, fenced_by = ?2, fenced_reason = 'replaced by a new boot of its slot'
 WHERE d.slot = ?3
   AND d.state IN ('active', 'draining')
   AND d.id = ?4
   AND d.beat = ?5
   AND (d.policy = 'probe' OR ` + expired + `)`

// insertExecutor adds an executor, unless its slot is held or its id is known.
//
// ?2 id, ?3 slot, ?4 url, ?5 public key, ?6 policy, ?7 lease, ?8 boot id of
// the host.
const insertExecutor = `
INSERT INTO executors (id, slot, url, public_key, policy, state, beat, heartbeat_at, lease_ttl, lease_since,
       registered_at, boot_id)
VALUES (?2, ?3, ?4, ?5, ?6, 'active', 0, ?1, ?7, ?1, ?1, ?8)
    ON CONFLICT DO NOTHING`

// selectHolder reads the boot that holds a slot. ?1 slot.
const selectHolder = `
SELECT ` + executorColumns + `
  FROM executors
 WHERE slot = ?1
   AND state IN ('active', 'draining')`

// heartbeat adds a beat. A pause longer than half a lease ends the unbroken
// run, and so does a clock that stepped back behind its start: otherwise
// nobody would be a fit observer until the clock had caught up. It also reads how
// often something was erased. ?2 id.
const heartbeat = `
UPDATE executors
   SET beat = beat + 1,
       lease_since = CASE WHEN ?1 - heartbeat_at > lease_ttl / 2 OR lease_since > ?1 THEN ?1 ELSE lease_since END,
       heartbeat_at = ?1
 WHERE id = ?2
   AND state IN ('active', 'draining')
RETURNING ` + executorColumns + `, (SELECT f.erasures FROM fleet f) AS erasures`

// drain stops an executor from claiming. ?1 id.
const drain = `
UPDATE executors
   SET state = 'draining'
 WHERE id = ?1
   AND state IN ('active', 'draining')`

// retire ends a drained executor. ?1 id.
const retire = `
UPDATE executors
   SET state = 'gone'
 WHERE id = ?1
   AND state IN ('draining', 'gone')`

// attest notes when a peer reached an executor, or null. ?1 when, ?2 id.
const attest = `
UPDATE executors
   SET attested_at = ?1
 WHERE id = ?2
   AND state IN ('active', 'draining')`

// selectExecutor reads one executor. ?1 id.
const selectExecutor = `
SELECT ` + executorColumns + `
  FROM executors
 WHERE id = ?1`

// listExecutors reads executors in any of the states in ?1, a JSON array.
const listExecutors = `
SELECT ` + executorColumns + `
  FROM executors
 WHERE state IN (SELECT value FROM json_each(?1))
 ORDER BY slot, registered_at, rowid`

// The conditions of a fence, each an expression over the suspect d. They are
// asked together by fence and one by one by explainFence.
//
// ?1 clock, ?2 suspect, ?3 observer, ?4 the suspect's beat at the first
// failure, ?5 whether a failed probe was confirmed, ?6 whether the beat stood
// still for a lease by the observer's own clock, ?7 the beat the observer must
// have reached by now.
const (
	// expired: its lease has run out.
	expired = `d.heartbeat_at < ?1 - d.lease_ttl`
	// fenceUnrefuted: no beat landed since the first failed probe.
	fenceUnrefuted = `d.beat = ?4`
	// fenceUnprotected: its own policy lets a probe fence it, or its lease is
	// over. A heartbeat in the future measures nothing; then the beat counts.
	fenceUnprotected = `((d.policy = 'probe' AND ?5) OR ` + expired + ` OR (?6 AND d.heartbeat_at > ?1))`
	// fenceObserved: the observer is another, is active, and its own beats land
	// now and landed since the suspicion; without a probe, for a whole lease, so
	// that an outage of the store makes nobody an observer.
	fenceObserved = `EXISTS (SELECT 1
                 FROM executors m
                WHERE m.id = ?3
                  AND m.id <> d.id
                  AND m.state = 'active'
                  AND m.heartbeat_at > ?1 - m.lease_ttl / 2
                  AND (?5 OR m.lease_since < ?1 - m.lease_ttl)
                  AND m.beat >= ?7)`
	// fenceUnbraked: at most half of the fleet is fenced within one lease. A
	// fence in the future was set before the clock stepped back; it does not
	// hold the brake until the clock has caught up.
	fenceUnbraked = `(SELECT count(*) FROM executors f
         WHERE f.fenced_at > ?1 - d.lease_ttl AND f.fenced_at < ?1 + d.lease_ttl)
       < max(1, (SELECT count(*) FROM executors l WHERE l.state IN ('active', 'draining')) / 2)`
)

// fence declares a suspect dead. Writers queue on the file, so two fences see
// each other's work and the brake counts the fleet. ?8 reason.
const fence = `
UPDATE executors AS d
   SET state = 'fenced', fenced_at = ?1, fenced_by = ?3, fenced_reason = ?8
 WHERE d.id = ?2
   AND d.state IN ('active', 'draining')
   AND ` + fenceUnrefuted + `
   AND ` + fenceUnprotected + `
   AND ` + fenceObserved + `
   AND ` + fenceUnbraked

// explainFence says which condition did not hold, in the order asked.
const explainFence = `
SELECT ` + fenceUnrefuted + ` AS unrefuted, ` + fenceUnprotected + ` AS unprotected, ` + fenceObserved + ` AS fit
  FROM executors d
 WHERE d.id = ?2`

// fenceByOperator fences at a person's word. ?2 suspect, ?3 whether by force,
// ?4 why, by the person's word.
const fenceByOperator = `
UPDATE executors AS d
   SET state = 'fenced', fenced_at = ?1, fenced_by = NULL, fenced_reason = ?4
 WHERE d.id = ?2
   AND d.state IN ('active', 'draining')
   AND (?3 OR ` + expired + `)`

// purgeExecutors deletes boots that ended long ago and hold nothing: a record
// in progress is never left without its executor. ?1 beaten before this.
const purgeExecutors = `
DELETE FROM executors
 WHERE state IN ('gone', 'fenced')
   AND heartbeat_at < ?1
   AND NOT EXISTS (SELECT 1 FROM records r WHERE r.executor_id = executors.id AND r.state = 'in_progress')`
