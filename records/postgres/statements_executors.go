package postgres

// The statements about executors and the fleet row. There are few executors
// and each has one row, which the primary key finds.

// selectFleet reads the one row that all nodes share.
const selectFleet = `
SELECT cluster, schema, min_binary
  FROM probate.fleet`

// claimFleet names the cluster of a store that has none yet. Of several nodes
// the first names it; the others find it named.
const claimFleet = `
UPDATE probate.fleet
   SET cluster = $1
 WHERE cluster = ''`

// rekeyFleet renames the cluster, if it has the name that the caller believes,
// and says so in an event.
const rekeyFleet = `
WITH f AS (
UPDATE probate.fleet
   SET cluster = $2, events = events + 1
 WHERE cluster = $1
RETURNING events
)
INSERT INTO probate.events (n, at, kind, epoch, actor, reason, was, became)
SELECT f.events, clock_timestamp(), 'rekeyed', 0, $3, '', $1, $2
  FROM f`

// lockFleet is where fences and registrations queue. It is a statement of its
// own, so that the next one sees what the one before in the queue committed.
const lockFleet = `
SELECT 1
  FROM probate.fleet
   FOR UPDATE`

// checkSession reads the two settings that a role or database may have changed
// from what the statements rely on.
const checkSession = `
SELECT current_setting('transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS durable`

// lockExecutor comes before an executor's end. It conflicts with the key-share
// lock that a claim holds on its executor, so claims on their way land first,
// and one that comes later waits, and then finds the executor inactive: no claim
// lands behind a fence. It is a statement of its own for the same reason as
// lockFleet.
const lockExecutor = `
SELECT 1
  FROM probate.executors e
 WHERE e.id = $1::uuid
   FOR UPDATE`

// executorFields are the columns of an executor e as they are stored.
const executorFields = `
       e.id, e.slot, e.url, e.public_key, e.policy, e.state, e.beat, e.heartbeat_at,
       e.lease_ttl, e.lease_since, e.attested_at, e.fenced_at, e.fenced_by, e.fenced_reason`

// executorColumns are the columns of an executor e as they are read: ages by
// the database's clock, intervals in microseconds, names apart from a record's.
const executorColumns = `
       e.id AS e_id, e.slot AS e_slot, e.url AS e_url, e.public_key AS e_public_key,
       e.policy AS e_policy, e.state AS e_state, e.beat AS e_beat, e.heartbeat_at AS e_heartbeat_at,
       (extract(epoch FROM clock_timestamp() - e.heartbeat_at) * 1000000)::bigint AS e_heartbeat_age,
       (extract(epoch FROM e.lease_ttl) * 1000000)::bigint AS e_lease_ttl, e.lease_since AS e_lease_since,
       e.attested_at AS e_attested_at,
       (extract(epoch FROM clock_timestamp() - e.attested_at) * 1000000)::bigint AS e_attested_age,
       e.fenced_at AS e_fenced_at, e.fenced_by AS e_fenced_by, e.fenced_reason AS e_fenced_reason`

// selectExecutor reads one executor, of any state.
const selectExecutor = `
SELECT` + executorColumns + `
  FROM probate.executors e
 WHERE e.id = $1::uuid`

// selectHolder reads the boot that holds a slot.
const selectHolder = `
SELECT` + executorColumns + `
  FROM probate.executors e
 WHERE e.slot = $1 AND e.state IN ('active', 'draining')`

// listExecutors reads the executors in the given states, or all.
const listExecutors = `
SELECT` + executorColumns + `
  FROM probate.executors e
 WHERE cardinality($1::text[]) = 0 OR e.state = ANY ($1::text[])
 ORDER BY e.slot COLLATE "C", e.registered_at, e.id`

// insertExecutor adds a boot. The unique index on the slot of those that live
// would refuse a second one, if the queue on the fleet row had let it through.
const insertExecutor = `
INSERT INTO probate.executors AS e
       (id, slot, url, public_key, policy, state, registered_at, beat, heartbeat_at, lease_ttl, lease_since)
SELECT $1::uuid, $2, $3, $4::bytea, $5, 'active', c.now, 0, c.now, $6::bigint * interval '1 microsecond', c.now
  FROM (SELECT clock_timestamp() AS now) c
RETURNING` + executorColumns

// heartbeat adds a beat, unless the executor was fenced or left: of a beat and
// a fence the first to lock the row wins, and the other finds nothing. A gap
// of more than half a lease starts the run of beats anew, and so does a clock
// that stepped back behind its start: otherwise nobody would be a fit observer
// until the clock had caught up. It also reads how often something was erased.
const heartbeat = `
UPDATE probate.executors e
   SET beat = e.beat + 1,
       lease_since = CASE WHEN c.now - e.heartbeat_at > e.lease_ttl / 2 OR e.lease_since > c.now
                          THEN c.now ELSE e.lease_since END,
       heartbeat_at = c.now
  FROM (SELECT clock_timestamp() AS now) c
 WHERE e.id = $1::uuid AND e.state IN ('active', 'draining')
RETURNING` + executorColumns + `,
       (SELECT f.erasures FROM probate.fleet f) AS e_erasures`

// drain is legal from active, and again from draining. Like a fence it waits
// for claims on their way.
const drain = `
UPDATE probate.executors e
   SET state = 'draining'
  FROM (SELECT o.id FROM probate.executors o WHERE o.id = $1::uuid FOR UPDATE) l
 WHERE e.id = l.id AND e.state IN ('active', 'draining')`

// retire is legal from draining, and again from gone.
const retire = `
UPDATE probate.executors e
   SET state = 'gone'
 WHERE e.id = $1::uuid AND e.state IN ('draining', 'gone')`

// attest notes a peer's proof, or its failure, of an executor that lives.
const attest = `
UPDATE probate.executors e
   SET attested_at = CASE WHEN $2::boolean THEN clock_timestamp() END
 WHERE e.id = $1::uuid AND e.state IN ('active', 'draining')`

// The conditions of a fence, each by itself, so that the statement that
// decides and the one that explains a refusal cannot differ. Arguments:
// $1 suspect, $2 its beat, $3 probed, $4 beat unchanged, $5 observer, $6 the
// beat that the observer must have reached.
const (
	// fenceUnrefuted: no beat of the suspect landed since.
	fenceUnrefuted = `d.beat = $2::bigint`
	// fenceUnprotected: the suspect's policy lets a probe do, or its lease is
	// over, or its last beat lies in the future and stands for a lease by the
	// observer's clock.
	fenceUnprotected = `(d.policy = 'probe' AND $3::boolean
        OR d.heartbeat_at < clock_timestamp() - d.lease_ttl
        OR $4::boolean AND d.heartbeat_at > clock_timestamp())`
	// fenceObserved: the observer is active, its own beats land, and on the
	// path of stale heartbeats they have for a lease: an outage of the store
	// makes nobody an observer.
	fenceObserved = `EXISTS (SELECT 1 FROM probate.executors m
                WHERE m.id = $5::uuid AND m.id <> d.id AND m.state = 'active'
                  AND m.heartbeat_at > clock_timestamp() - m.lease_ttl / 2
                  AND ($3::boolean OR m.lease_since < clock_timestamp() - m.lease_ttl)
                  AND m.beat >= $6::bigint)`
	// fenceUnbraked: within the suspect's lease fewer were fenced than the
	// fleet may lose, half of it and one at least. A fence in the future was set
	// before the clock stepped back; it does not hold the brake until the clock
	// has caught up.
	fenceUnbraked = `(SELECT count(*) FROM probate.executors f
         WHERE f.fenced_at > clock_timestamp() - d.lease_ttl AND f.fenced_at < clock_timestamp() + d.lease_ttl)
       < greatest(1, (SELECT count(*) FROM probate.executors f WHERE f.state IN ('active', 'draining')) / 2)`
)

// fence declares the suspect dead. It runs behind lockFleet, so two nodes
// cannot fence each other and the brake counts all fences of the fleet.
const fence = `
UPDATE probate.executors d
   SET state = 'fenced', fenced_at = clock_timestamp(), fenced_by = $5::uuid, fenced_reason = $7
 WHERE d.id = $1::uuid AND d.state IN ('active', 'draining')
   AND ` + fenceUnrefuted + `
   AND ` + fenceUnprotected + `
   AND ` + fenceObserved + `
   AND ` + fenceUnbraked

// explainFence says which condition of fence does not hold, behind the same
// lock.
const explainFence = `
SELECT d.state IN ('fenced', 'gone') AS terminal,
       ` + fenceUnrefuted + ` AS unrefuted,
       ` + fenceUnprotected + ` AS unprotected,
       ` + fenceObserved + ` AS observed,
       ` + fenceUnbraked + ` AS unbraked
  FROM probate.executors d
 WHERE d.id = $1::uuid`

// fenceReplaced fences the boot that a new boot of its slot has found silent,
// as its own policy allows. Behind lockFleet; no brake.
const fenceReplaced = `
UPDATE probate.executors d
   SET state = 'fenced', fenced_at = clock_timestamp(), fenced_by = $3::uuid, fenced_reason = 'replaced by a new boot of its slot'
 WHERE d.id = $1::uuid AND d.state IN ('active', 'draining') AND d.beat = $2::bigint
   AND (d.policy = 'probe' OR d.heartbeat_at < clock_timestamp() - d.lease_ttl)`

// fenceByOperator fences at a person's word, and returns what the executor was.
// Behind lockFleet, like all, and behind lockExecutor, so what it was stands.
const fenceByOperator = `
UPDATE probate.executors d
   SET state = 'fenced', fenced_at = clock_timestamp(), fenced_by = NULL, fenced_reason = $2
  FROM (SELECT e.id, e.state FROM probate.executors e WHERE e.id = $1::uuid) was
 WHERE d.id = was.id AND d.state IN ('active', 'draining')
   AND ($3::boolean OR d.heartbeat_at < clock_timestamp() - d.lease_ttl)
RETURNING was.state`

// Executors that are terminal, silent for longer than an age and hold nothing
// are deleted in one transaction of two statements. The first locks them,
// passing over any with a claim still on its way; the second, which sees all
// that committed before those locks, looks for records. Only an active executor
// can come by one, so no record in progress is ever left without its executor.
// This costs nothing on the hot path, where a foreign key would be checked for
// every record.
const (
	lockTerminal = `
SELECT e.id
  FROM probate.executors e
 WHERE e.state IN ('fenced', 'gone')
   AND e.heartbeat_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
   FOR UPDATE SKIP LOCKED`
	purgeExecutors = `
DELETE FROM probate.executors e
 WHERE e.id = ANY ($1::uuid[])
   AND NOT EXISTS (SELECT 1 FROM probate.records r
                    WHERE r.state = 'in_progress' AND r.executor_id = e.id OFFSET 0)`
)
