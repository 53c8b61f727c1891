// Package takeover decides who executes a request, and takes over from
// executors that died.
//
// # Promises
//
// [Node.Do] runs a keyed request's work at most once at a time in the fleet,
// and never again once its response was stored. Work begins only under a claim
// that the store has acknowledged, only while this node's own lease is young
// enough, and never after an execution that may have taken effect unless a
// [Reconciler] has said that it did not. A duplicate's answer comes from a row
// of the store.
//
// Before a node overtakes an owner it has the owner's own signature that it
// does not run the record, or the store says that the owner left or was
// fenced; and it fences only an owner that did not answer, was confirmed not
// to, and sent no heartbeat meanwhile, or whose lease has run out.
//
// Work is detached from the client that asked for it. Its context ends, with a
// cause, when this node can no longer be sure that nobody has taken over. A
// result is kept and offered to the store through any outage, until the store
// takes it or says that the fence no longer holds.
//
// [Node.Run] registers the executor, keeps it alive, and leaves no goroutine
// behind when it returns.
//
// # Not promised
//
// Exactly-once effects at a service that knows neither fences nor a
// reconcilable query: an owner that was declared dead may have sent a request
// that is still on its way.
//
// # Imports
//
// Packages probe and records, cenkalti/backoff, google/uuid, x/sync. No store,
// no SQL, no HTTP.
//
// # Reading order
//
// machine.go is the mind: [Decide] and [Recover] are pure, and testdata holds
// their scripts. Around it: node.go, coordinator.go (a caller), flight.go (all
// callers who ask the same), course.go (a flight's way through the protocol),
// suspect.go (probe, watch, confirm, fence), claim.go (take over), tenure.go
// (execute, recover, settle), order.go (an operator's question), reconcile.go,
// query.go, work.go, memory.go (replays). The executor: owner.go
// (register, beat, leave), boot.go, lease.go, peers.go, running.go, house.go
// and sweep.go (what nobody waits for). config.go, events.go, waiters.go,
// definite.go, settle.go, names.go.
package takeover
