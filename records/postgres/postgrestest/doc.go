//go:build unix

// Package postgrestest gives tests a real PostgreSQL: a throw-away cluster,
// and in it a fresh, migrated database for every test.
//
// # Promises
//
// [Database] starts one cluster a test binary, at first use, and makes each
// database from a template in milliseconds. If PROBATE_TEST_DATABASE_URL is
// set it starts nothing and makes its databases on that server, whose user
// must be allowed to. [Start] always starts a cluster of the test's own, which
// the test may stop, kill and start again.
//
// Clusters listen on loopback, on ports the kernel chose, and never outlive
// the test binary, however it ends: each is watched by a process that holds
// the other end of a pipe and takes the cluster down when the pipe closes.
//
// Where PostgreSQL is missing a test fails, and the failure says what to
// install. Nothing is skipped.
//
// # Not promised
//
// By default a cluster does not fsync, so what it acknowledged survives a
// crash of the server but not of the machine. [Options] can ask for it.
//
// # Imports
//
// testing, lib/pq and records/postgres, whose migrations fill the template.
//
// # Reading order
//
// cluster.go, database.go, pooler.go, standby.go, binaries.go, account.go.
package postgrestest
