-- Leaves nothing of ours. The schema is not dropped with CASCADE: if somebody
-- put something of theirs into it, this fails and changes nothing.

DROP TABLE probate.records;
DROP TABLE probate.executors;
DROP TABLE probate.fleet;
DROP SCHEMA probate;
