UPDATE fleet SET schema = 2, min_binary = 1;
DROP TABLE flow_callbacks;
DROP TABLE flows;
