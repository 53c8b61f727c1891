-- Takes the flows with it, and what was still to be told about them.

UPDATE probate.fleet SET schema = 2, min_binary = 1;
DROP TABLE probate.flow_callbacks;
DROP TABLE probate.flows;
