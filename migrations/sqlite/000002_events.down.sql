-- Takes the audit with it.

UPDATE fleet SET schema = 1, min_binary = 1;
DROP TABLE events;
ALTER TABLE fleet DROP COLUMN erasures;
ALTER TABLE fleet DROP COLUMN events;
