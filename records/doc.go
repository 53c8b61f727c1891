// Package records says what Probate stores and what a store must promise.
//
// # Promises
//
// A [Record] is one idempotent operation: one row per realm, principal and
// key. An [Executor] is one boot of one process. A [Store] keeps both, and
// every method of it is one decision: it is atomic, it names the [Fence] it
// acts under, and when the fence no longer holds it changes nothing and says
// [ErrFenced]. For a given record:
//
//   - the epoch never falls and is never reused; it grows only by a claim, a
//     take-over, a claim of an unknown outcome or an operator who ends it, and
//     each epoch has exactly one executor;
//   - it is finalized at most once per claim, by the (executor, epoch) that
//     holds it at that moment, or by an operator once its outcome is unknown;
//   - it changes hands only after its executor was fenced or has gone, after
//     that executor signed that it is not running it, or from an executor to
//     itself;
//   - while in progress it never expires and is never purged;
//   - its answer never changes, but for an operator who erases what it says.
//
// An executor that is fenced or gone stays so: no heartbeat, claim or
// take-over by it commits afterwards.
//
// What an operator does leaves an [Event] in the same transaction. Events are
// read in the order of their commits, so what was read once does not change.
//
// Time is the store's: a method that decides by a clock reads the database's,
// inside the statement that decides. Durations are passed in, instants never.
//
// Strings that come from a client (realm, key, operation, resource, header
// values) are byte strings. They may hold NUL, invalid UTF-8 or nothing, and
// are kept and returned byte for byte.
//
// # Not promised
//
// A store does not know whether a process is alive, only what was written
// about it; asking is the work of package probe, deciding that of package
// takeover. A method that returns [ErrUnavailable] may have taken effect: the
// same call repeated with the same token finds out.
//
// # Imports
//
// The standard library, and nothing else. Drivers live in the packages below
// (records/postgres, records/sqlite), which share records/groupcommit and pass
// records/recordstest.
//
// # Reading order
//
// record.go, executor.go, state.go, store.go; event.go and operator.go (the
// audit, and hands on a stuck key); flow.go (data flows); headers.go,
// validate.go; execution.go and account.go, which stores and coordinators share;
// errors.go.
package records
