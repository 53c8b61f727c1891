-- Schema 3: data flows, and the messages about them that wait to be delivered.
--
-- Binaries built for older schemas do not know the tables and need not.

-- One row per tracked flow. It is the truth about the flow; its record, which
-- is in progress while bytes move, is the truth about who moves them.
CREATE TABLE flows (
    id          TEXT PRIMARY KEY NOT NULL,      -- the processId
    record_id   BLOB NOT NULL CHECK (length(record_id) = 32),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    moves       INTEGER NOT NULL,               -- while it runs a record of it is in progress
    state       TEXT NOT NULL CHECK (state IN ('PREPARING', 'PREPARED', 'STARTING', 'STARTED', 'SUSPENDED', 'COMPLETED', 'TERMINATED')),
    version     INTEGER NOT NULL,               -- grows by one with every move
    attempt     BLOB NOT NULL CHECK (length(attempt) = 16),
    wanted      TEXT NOT NULL DEFAULT '' CHECK (wanted IN ('', 'SUSPENDED', 'TERMINATED')),
    wanted_by   TEXT NOT NULL DEFAULT '' CHECK (wanted_by IN ('', 'operator')), -- '': the control plane
    reason      TEXT NOT NULL DEFAULT '',
    profile     TEXT NOT NULL,
    dataset     TEXT NOT NULL,
    reply_to    TEXT NOT NULL,
    tokens      BLOB NOT NULL,                  -- hashes, 32 bytes each
    attempts    INTEGER NOT NULL DEFAULT 0,     -- executions begun
    executor_id BLOB,                           -- of the last one
    epoch       INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    total       INTEGER NOT NULL DEFAULT 0,     -- 0: not known
    sha256      BLOB,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    checkpoint  BLOB,
    message     BLOB NOT NULL,
    CHECK ((state IN ('COMPLETED', 'TERMINATED')) = (ended_at IS NOT NULL))
) STRICT;

-- What a live executor should have in progress, and what is being prepared: few
-- rows among many.
CREATE INDEX flows_awaited ON flows (id) WHERE moves AND state IN ('STARTING', 'STARTED') OR state = 'PREPARING';

-- What the purge looks for.
CREATE INDEX flows_ended ON flows (ended_at) WHERE ended_at IS NOT NULL;

-- The outbox: one row per message to a control plane, written with the move
-- that caused it and deleted when it was delivered.
CREATE TABLE flow_callbacks (
    flow_id    TEXT NOT NULL,
    version    INTEGER NOT NULL,                -- of the flow, by that move
    event      TEXT NOT NULL,
    url        TEXT NOT NULL,
    body       BLOB NOT NULL,
    tries      INTEGER NOT NULL DEFAULT 0,
    reason     TEXT NOT NULL DEFAULT '',        -- why the last try failed
    created_at INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,                -- nobody takes it before
    PRIMARY KEY (flow_id, version)
) STRICT;

CREATE INDEX flow_callbacks_due ON flow_callbacks (due_at);

UPDATE fleet SET schema = 3, min_binary = 1;
