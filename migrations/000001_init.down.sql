-- Leaves nothing of ours. The schema stays if somebody else has something in it,
-- which may be the migration tool's own table.

DROP TABLE probate.records;
DROP TABLE probate.executors;
DROP TABLE probate.fleet;

DO $$
BEGIN
    DROP SCHEMA probate;
EXCEPTION
    WHEN dependent_objects_still_exist THEN NULL;
END
$$;
