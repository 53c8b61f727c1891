package postgres

// A transaction's bound on idling is at most half the lease of the owner whose
// transaction it is.
const (
	idleNow  = `(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint`
	idleMost = `greatest(1, extract(epoch FROM e.lease_ttl) * 1000 / 2)::bigint`
)

// joinBound reads whether the session bounds the idling of its transactions,
// and bounds that of this one if not.
const joinBound = `
SELECT s.most, s.bounded,
       CASE WHEN NOT s.bounded
            THEN set_config('idle_in_transaction_session_timeout', s.most::text, true) END AS set
  FROM (SELECT ` + idleMost + ` AS most, ` + idleNow + ` BETWEEN 1 AND ` + idleMost + ` AS bounded
          FROM probate.executors e
         WHERE e.id = $1::uuid) s`

// joinReturning makes settleOne the last statement of a caller's transaction:
// it also reads for how long that might have idled, in milliseconds; 0: for
// ever.
const joinReturning = `
RETURNING ` + idleNow + ` AS idle`

// joinSettled reads who wrote a record last, and how.
const joinSettled = `
SELECT r.id, r.state, r.executor_id, r.epoch
  FROM probate.records r
 WHERE r.id = $1::bytea`
