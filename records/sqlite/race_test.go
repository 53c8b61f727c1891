//go:build race

package sqlite_test

// many is a large table. The race detector slows SQLite down tenfold.
const many = 100_000
