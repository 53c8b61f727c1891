-- Schema 2: events, the audit of what happened and of what operators did.
--
-- Binaries built for schema 1 do not know the table and need not: they may run
-- beside newer ones while an upgrade, or its rollback, rolls.
--
-- Applying it again changes nothing.

-- events counts every event that was ever written. It numbers them, in the
-- transaction that writes them: an event's number is known to be the next one
-- because its writer holds this row until it has committed. So the order of
-- numbers is the order of commits, nothing ever appears before what a reader has
-- seen, and a page that was read does not change. A sequence does not do that: a
-- smaller number may commit after a larger one.
--
-- erasures counts how often something was erased. It comes back with every
-- heartbeat, and a node that finds it grown drops the responses it has in memory.
ALTER TABLE probate.fleet ADD COLUMN IF NOT EXISTS events bigint NOT NULL DEFAULT 0;
ALTER TABLE probate.fleet ADD COLUMN IF NOT EXISTS erasures bigint NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS probate.events (
    n           bigint PRIMARY KEY,
    at          timestamptz NOT NULL,       -- when it happened
    kind        text NOT NULL,
    record_id   bytea CHECK (octet_length(record_id) = 32),
    epoch       bigint NOT NULL,            -- of the record then; 0: about no record
    executor_id uuid,
    actor       text NOT NULL,              -- a person; '': a node, by itself
    reason      text NOT NULL,
    was         text NOT NULL,              -- state before and after, where somebody changed it
    became      text NOT NULL
);

-- What happened to a record, and to an executor: partial, since an event may be
-- about neither.
CREATE INDEX IF NOT EXISTS events_record ON probate.events (record_id, n) WHERE record_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_executor ON probate.events (executor_id, n) WHERE executor_id IS NOT NULL;

-- What the purge looks for.
CREATE INDEX IF NOT EXISTS events_at ON probate.events (at);

UPDATE probate.fleet SET schema = 2, min_binary = 1 WHERE schema < 2;
