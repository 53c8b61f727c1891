-- Schema 2: events, the audit of what happened and of what operators did.
--
-- Binaries built for schema 1 do not know the table and need not.

-- events counts every event that was ever written and numbers them, so that a
-- number is never used again, also after a purge. erasures counts how often
-- something was erased; it comes back with every heartbeat, and a process that
-- finds it grown drops the responses it has in memory.
ALTER TABLE fleet ADD COLUMN events INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet ADD COLUMN erasures INTEGER NOT NULL DEFAULT 0;

CREATE TABLE events (
    n           INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,      -- when it happened
    kind        TEXT NOT NULL,
    record_id   BLOB CHECK (length(record_id) = 32),
    epoch       INTEGER NOT NULL,      -- of the record then; 0: about no record
    executor_id BLOB CHECK (length(executor_id) = 16),
    actor       TEXT NOT NULL,         -- a person; '': a node, by itself
    reason      TEXT NOT NULL,
    was         TEXT NOT NULL,         -- state before and after, where somebody changed it
    became      TEXT NOT NULL
) STRICT;

-- What happened to a record, and to an executor: partial, since an event may be
-- about neither.
CREATE INDEX events_record ON events (record_id, n) WHERE record_id IS NOT NULL;
CREATE INDEX events_executor ON events (executor_id, n) WHERE executor_id IS NOT NULL;

-- What the purge looks for.
CREATE INDEX events_at ON events (at);

UPDATE fleet SET schema = 2, min_binary = 1;
