-- Schema 1: fleet, executors, records.
--
-- Times and durations are integers in microseconds; times count from 1970.
-- Ids and everything a client sent are blobs. Tables are strict, so that a
-- column holds what it says.

-- One row: which cluster this store belongs to and how new its schema is.
CREATE TABLE fleet (
    only       INTEGER PRIMARY KEY DEFAULT 1 CHECK (only = 1),
    cluster    TEXT NOT NULL DEFAULT '',   -- '' until the first node starts
    schema     INTEGER NOT NULL,           -- number of the last migration
    min_binary INTEGER NOT NULL            -- oldest schema number a binary may have been built for
) STRICT;

INSERT INTO fleet (schema, min_binary) VALUES (1, 1);

-- One row per boot of a process.
CREATE TABLE executors (
    id            BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    slot          TEXT NOT NULL,
    url           TEXT NOT NULL,
    public_key    BLOB NOT NULL,
    policy        TEXT NOT NULL CHECK (policy IN ('probe', 'lease')),
    state         TEXT NOT NULL CHECK (state IN ('active', 'draining', 'gone', 'fenced')),
    beat          INTEGER NOT NULL,
    heartbeat_at  INTEGER NOT NULL,
    lease_ttl     INTEGER NOT NULL,
    lease_since   INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    boot_id       TEXT NOT NULL,           -- of the host: one file, one host
    attested_at   INTEGER,
    fenced_at     INTEGER,
    fenced_by     BLOB,
    fenced_reason TEXT
) STRICT;

-- At most one active executor a slot: active and draining both hold it.
CREATE UNIQUE INDEX executors_slot ON executors (slot) WHERE state IN ('active', 'draining');

-- One row per realm, principal and key. The table keeps its rowid on purpose:
-- rows are appended, so a reserve touches one random page, that of the index
-- on id, and the finalize that follows finds its row on a page still warm.
-- Columns that may be large stand last, where a scan does not read them.
CREATE TABLE records (
    id           BLOB NOT NULL UNIQUE CHECK (length(id) = 32),
    state        TEXT NOT NULL CHECK (state IN ('in_progress', 'finalized', 'unknown', 'released')),
    executor_id  BLOB NOT NULL,
    executor_url TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    attempt      BLOB NOT NULL CHECK (length(attempt) = 16),
    takeovers    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    finalized_at INTEGER,
    expires_at   INTEGER,
    status       INTEGER,
    fingerprint  BLOB NOT NULL CHECK (length(fingerprint) = 32),
    realm        BLOB NOT NULL,
    key          BLOB NOT NULL,
    operation    BLOB NOT NULL,
    resource     BLOB NOT NULL,
    headers      BLOB,
    request      BLOB,
    body         BLOB,
    CHECK ((state = 'in_progress') = (expires_at IS NULL))
) STRICT;

-- What an executor has in progress, in order of id: for its own audit, the
-- sweep of the dead, and the rule that no such record outlives its executor.
CREATE INDEX records_in_progress ON records (executor_id, id) WHERE state = 'in_progress';

-- What the purge looks for.
CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
