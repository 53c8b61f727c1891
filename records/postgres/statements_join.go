package postgres

// A transaction's bound on idling is at most half the lease of the owner whose
// transaction it is.
const bounded = `current_setting('idle_in_transaction_session_timeout')::interval
       BETWEEN interval '1 millisecond' AND e.lease_ttl / 2`

// joinBound reads whether the session bounds the idling of its transactions,
// and bounds that of this one if not.
const joinBound = `
SELECT s.bounded,
       CASE WHEN NOT s.bounded
            THEN set_config('idle_in_transaction_session_timeout',
                            greatest(1, extract(epoch FROM s.lease_ttl) * 1000 / 2)::bigint::text, true) END AS set
  FROM (SELECT e.lease_ttl, ` + bounded + ` AS bounded
          FROM probate.executors e
         WHERE e.id = $1::uuid) s`

// joinReturning makes settleOne the last statement of a caller's transaction:
// it also reads whether the transaction's idling was bounded, as far as this
// executor's lease goes.
const joinReturning = `
RETURNING (SELECT ` + bounded + `
             FROM probate.executors e
            WHERE e.id = r.executor_id)`

// joinSettled reads who wrote a record last, and how.
const joinSettled = `
SELECT r.id, r.state, r.executor_id, r.epoch
  FROM probate.records r
 WHERE r.id = $1::bytea`
