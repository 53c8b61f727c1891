//go:build !race

package sqlite_test

// many is a large table.
const many = 1_000_000
