DROP TABLE records;
DROP TABLE executors;
DROP TABLE fleet;
