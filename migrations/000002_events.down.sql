-- Takes the audit with it.

UPDATE probate.fleet SET schema = 1, min_binary = 1;
DROP TABLE probate.events;
ALTER TABLE probate.fleet DROP COLUMN erasures;
ALTER TABLE probate.fleet DROP COLUMN events;
