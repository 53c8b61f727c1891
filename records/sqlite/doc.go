// Package sqlite keeps records and executors in one SQLite file: the default,
// for one machine, with nothing to set up and no C compiler.
//
// # Promises
//
// [Open] makes the file, readable by its owner only, migrates it and returns a
// [records.Store]. Several processes of one host may share the file. What a
// method acknowledged is on disk: write-ahead log, synchronous=FULL. A process
// that is killed in the middle of a write loses nothing that was acknowledged
// and stands in nobody's way.
//
// Every write is a job in a transaction that began with BEGIN IMMEDIATE, so
// writers are one after the other and a job sees all that came before it. The
// jobs that queued while the last transaction was being committed share the
// next one. The clock is Go's, read inside the transaction and never before
// waiting for it.
//
// Processes take turns: one that waits to write lets every other waiting
// process go first at most once. A process that was stopped while it waited is
// passed over.
//
// # Not promised
//
// One file is for one host. Registering while live executors of another boot
// id are in the file is refused with [records.ErrForeignHost], but a network
// file system whose locks do not work is not detected. A process stopped in the
// middle of a transaction holds the file, and writes of the others end with
// [records.ErrUnavailable] until it goes on or dies. Turns are taken on Linux
// and macOS; elsewhere processes compete for SQLite's own lock.
//
// # Imports
//
// records, records/groupcommit, migrations; sqlx, go-sqlite3, golang-migrate.
//
// # Reading order
//
// store.go, open.go, migrate.go; write.go (group commit), turn_ofd.go
// (processes take turns); statements.go, statements_executors.go,
// statements_events.go; records.go, owned.go, executors.go, fence.go, list.go;
// events.go, operator.go; flows.go with flowrows.go and statements_flows.go;
// rows.go, errors.go, boot_linux.go.
package sqlite
