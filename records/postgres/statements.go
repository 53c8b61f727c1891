package postgres

// selectFleet reads the one row that all nodes share.
const selectFleet = `
SELECT cluster, schema, min_binary
  FROM probate.fleet`
