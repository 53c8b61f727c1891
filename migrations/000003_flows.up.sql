-- Schema 3: data flows, and the messages about them that wait to be delivered.
--
-- Binaries built for older schemas do not know the tables and need not: a node
-- that moves data asks for this schema itself, when it starts.
--
-- Applying it again changes nothing.

-- One row per tracked flow. It is the truth about the flow; its record, which
-- is in progress while bytes move, is the truth about who moves them.
CREATE TABLE IF NOT EXISTS probate.flows (
    id          text COLLATE "C" PRIMARY KEY,   -- the processId
    record_id   bytea NOT NULL CHECK (octet_length(record_id) = 32),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    moves       boolean NOT NULL,               -- while it runs a record of it is in progress
    state       text NOT NULL CHECK (state IN ('PREPARING', 'PREPARED', 'STARTING', 'STARTED', 'SUSPENDED', 'COMPLETED', 'TERMINATED')),
    version     bigint NOT NULL,                -- grows by one with every move
    attempt     bytea NOT NULL CHECK (octet_length(attempt) = 16),
    wanted      text NOT NULL DEFAULT '' CHECK (wanted IN ('', 'SUSPENDED', 'TERMINATED')),
    wanted_by   text NOT NULL DEFAULT '' CHECK (wanted_by IN ('', 'operator')), -- '': the control plane
    reason      text NOT NULL DEFAULT '',
    profile     text NOT NULL,
    dataset     text NOT NULL,
    message     bytea NOT NULL,
    reply_to    text NOT NULL,
    tokens      bytea NOT NULL,                 -- hashes, 32 bytes each
    attempts    integer NOT NULL DEFAULT 0,     -- executions begun
    executor_id uuid,                           -- of the last one
    epoch       bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL DEFAULT 0,
    total       bigint NOT NULL DEFAULT 0,      -- 0: not known
    sha256      bytea,
    checkpoint  bytea,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK ((state IN ('COMPLETED', 'TERMINATED')) = (ended_at IS NOT NULL))
);

-- What a live executor should have in progress, and what is being prepared: few
-- rows among many.
CREATE INDEX IF NOT EXISTS flows_awaited ON probate.flows (id) WHERE moves AND state IN ('STARTING', 'STARTED') OR state = 'PREPARING';

-- What the purge looks for.
CREATE INDEX IF NOT EXISTS flows_ended ON probate.flows (ended_at) WHERE ended_at IS NOT NULL;

-- The outbox: one row per message to a control plane, written with the move
-- that caused it and deleted when it was delivered.
CREATE TABLE IF NOT EXISTS probate.flow_callbacks (
    flow_id    text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,                 -- of the flow, by that move
    event      text NOT NULL,
    url        text NOT NULL,
    body       bytea NOT NULL,
    tries      integer NOT NULL DEFAULT 0,
    reason     text NOT NULL DEFAULT '',        -- why the last try failed
    created_at timestamptz NOT NULL,
    due_at     timestamptz NOT NULL,            -- nobody takes it before
    PRIMARY KEY (flow_id, version)
);

CREATE INDEX IF NOT EXISTS flow_callbacks_due ON probate.flow_callbacks (due_at);

UPDATE probate.fleet SET schema = 3, min_binary = 1 WHERE schema < 3;
