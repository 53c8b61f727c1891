// Package postgres is the store for a fleet: records and executors in
// PostgreSQL 13 or newer.
//
// # Promises
//
// [Store] keeps the contract of records.Store. Each decision is one statement,
// or one transaction that first queues on the fleet row, under READ COMMITTED;
// the statement repeats its condition on the row it has locked, so losing a
// race means zero rows and never a write.
//
// Requests that come while a commit runs share the next one, unseen by their
// callers: reserve, load and the owner's last write are batched, and a batch of
// one is the plain statement, sent by its caller. Rows are locked in order of id
// everywhere, so two nodes' batches cannot deadlock. A row that cannot be written
// costs its batch a second try, row by row, and fails alone.
//
// A claim holds a key-share lock on its executor until it has committed. A fence
// and a drain wait for such locks and later claims wait for them, so once they
// have returned no claim of that executor lands any more; a heartbeat, which
// does not touch the key, waits for neither.
//
// Events are numbered from the fleet row, which their writer holds until it has
// committed: the order of numbers is the order of commits. Who touches a record
// or an executor besides takes that row first. Nothing on the hot path does.
//
// A lost reply is harmless. A claim knows itself by its token, an owner's last
// write by its fence: the same call again says what became of the first one.
//
// Statements are bounded three times: by the server's timeouts, by a limit on
// silence of the connection, and by the caller's context, whose end returns the
// caller at once; what it sent may still land. Heartbeats have a connection of
// their own and queue behind nothing.
//
// No statement on the hot path scans a table, whether or not it was ever
// analysed, and none depends on planner settings. At run time there are no
// advisory locks, no LISTEN, no triggers, no sequences and no session state,
// so PgBouncer in transaction mode will do (Config.Pooler); migrations need a
// direct connection.
//
// # Not promised
//
// What the server acknowledges must be durable: synchronous_commit must not be
// off, and a standby that may become the primary must be synchronous.
//
// # Imports
//
// records, records/groupcommit, migrations, sqlx, lib/pq and golang-migrate.
//
// # Reading order
//
// config.go, store.go, statements.go with statements_executors.go,
// statements_scans.go and statements_events.go; reserve.go, settle.go and
// load.go, which are batched; claim.go, scans.go, executors.go, fence.go;
// events.go, operator.go; flows.go with statements_flows.go; jointx.go with
// statements_join.go, the owner's write in a caller's transaction; reconcile.go
// with reconcile_text.go, a query on a caller's database; rows.go and arrays.go,
// the forms on the wire; errors.go; dsn.go and pool.go, how the server is reached; fleet.go and
// migrate.go, the schema.
package postgres
