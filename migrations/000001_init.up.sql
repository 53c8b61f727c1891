-- Schema 1: fleet, executors, records.
--
-- Everything lives in schema probate, so that the tables can share a user's
-- database and take part in a user's transaction.
--
-- Applying it again changes nothing. The migration tool looks for its own table
-- in the first schema of the search path, and for a role named probate that
-- changes the moment this schema is there: the tool then finds no table and
-- starts from the beginning.

CREATE SCHEMA IF NOT EXISTS probate;

-- One row: which cluster this store belongs to, how new its schema is, and
-- the lock on which fences queue.
CREATE TABLE IF NOT EXISTS probate.fleet (
    one_row    boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    cluster    text NOT NULL DEFAULT '',    -- '' until the first node starts
    schema     integer NOT NULL,            -- number of the last migration
    min_binary integer NOT NULL             -- oldest schema number a binary may have been built for
);

INSERT INTO probate.fleet (schema, min_binary) VALUES (1, 1) ON CONFLICT DO NOTHING;

-- One row per boot of a process.
CREATE TABLE IF NOT EXISTS probate.executors (
    id            uuid PRIMARY KEY,
    slot          text NOT NULL,
    url           text NOT NULL,
    public_key    bytea NOT NULL,
    policy        text NOT NULL CHECK (policy IN ('probe', 'lease')),
    state         text NOT NULL CHECK (state IN ('active', 'draining', 'gone', 'fenced')),
    registered_at timestamptz NOT NULL,
    beat          bigint NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    lease_ttl     interval NOT NULL,
    lease_since   timestamptz NOT NULL,
    attested_at   timestamptz,
    fenced_at     timestamptz,
    fenced_by     uuid,
    fenced_reason text
);

-- At most one active executor a slot: active and draining both hold it.
CREATE UNIQUE INDEX IF NOT EXISTS executors_slot ON probate.executors (slot) WHERE state IN ('active', 'draining');

-- One row per realm, principal and key.
CREATE TABLE IF NOT EXISTS probate.records (
    id           bytea PRIMARY KEY CHECK (octet_length(id) = 32),
    realm        bytea NOT NULL,
    key          bytea NOT NULL,
    operation    bytea NOT NULL,
    resource     bytea NOT NULL,
    fingerprint  bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    state        text NOT NULL CHECK (state IN ('in_progress', 'finalized', 'unknown', 'released')),
    executor_id  uuid NOT NULL,
    executor_url text NOT NULL,
    epoch        bigint NOT NULL,
    attempt      bytea NOT NULL,
    takeovers    integer NOT NULL,
    request      bytea,
    status       smallint,
    headers      bytea,
    body         bytea,
    created_at   timestamptz NOT NULL,
    finalized_at timestamptz,
    expires_at   timestamptz,
    CHECK ((state = 'in_progress') = (expires_at IS NULL))
);

-- The indexes below name the state, so a record's last write is no heap-only
-- update. That was measured: together they cost the server about a fifth of its
-- work at full load, and without them the purge, the sweep and a listing would
-- scan the table. Room left on pages (fillfactor) buys nothing then, and nothing for
-- executors either, whose heartbeats are heap-only updates as it is (99.7 %).
--
-- There is no foreign key from records to executors. It would be checked for
-- every record, five to twenty per cent of a request, and what it would
-- guarantee is kept without it: claims hold a lock on their executor, and
-- executors are deleted behind such locks only when nothing names them.

-- What an executor has in progress, in order of id: for its own audit, the
-- sweep of the dead, and the rule that no such record outlives its executor.
-- Partial, because nearly all rows are finalized.
CREATE INDEX IF NOT EXISTS records_in_progress ON probate.records (executor_id, id) WHERE state = 'in_progress';

-- What the purge looks for.
CREATE INDEX IF NOT EXISTS records_expiring ON probate.records (expires_at) WHERE state <> 'in_progress';

-- What waits for a reconciler or an operator: few rows among many.
CREATE INDEX IF NOT EXISTS records_unknown ON probate.records (id) WHERE state = 'unknown';
