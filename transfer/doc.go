// Package transfer is a data plane: it moves bytes for a dataspace's control
// plane, under the protocol that keeps every other request of the fleet.
//
// # Promises
//
// A start that is repeated, on whatever node, never copies twice while the
// first copy lives. While bytes move there is a record in progress with realm
// "dataflow", whose key is the processId and whose request is the message that
// describes the work, so any node can do it again without a client: one that
// takes it over goes on from the checkpoint, or begins again.
//
// A flow's row is the truth about it. Every move of it is one write, fenced by
// the record where one runs, and the callback that the move causes is written
// with it; what is final stays so, whether or not anybody could be told.
// Nothing is seen under a sink's final name before it is whole, and just
// before it is, the fence is asked for.
//
// Suspend and terminate work through any node, and are answered when the bytes
// have stopped: who does not move them passes the order on to who does, and if
// nobody answers there, takes the flow over in order to end it. A control plane
// is told of every end that it has not asked for: an operator's, too.
//
// A prepare that is not waited for becomes prepared on some node, with one
// callback that carries the address of a push: a token goes through the outbox,
// which is as secret as the store that the plane is given keeps it.
//
// A start that says "trackable": false has none of this: no row, no record, no
// probe. It is done by who was asked, and answered when it is done.
//
// # Not promised
//
// That a sink outside the fleet's reach, such as a consumer's HTTP endpoint,
// sees a request only once: a node that dies after its PUT and before its word
// that it is completed leaves a successor that sends it again. Of a file and of
// an object the successor sees that it is whole, and reads nothing.
//
// As a consumer's data plane it fetches nothing: started with an address keeps
// where the data of a pull is to be had, for whoever asks with that.
//
// # Imports
//
// Packages takeover, records and transfer/move, chi, backoff, uuid. No store, no
// SQL.
//
// # Reading order
//
// message.go and declared.go (what is said on the wire), task.go (what is kept of
// it), answer.go and problem.go (what is answered); config.go, plane.go (the
// whole); prepare.go, endpoints.go (the commands), start.go, ensure.go (that
// somebody runs it), run.go (the work), rounds.go (its bytes), events.go (who
// counts them), ledger.go (their progress), orders.go (stop it, wherever it runs); tokens.go, data.go (bytes
// that others come for) and receive.go (or bring), solo.go (what is not tracked); outbox.go,
// register.go, chores.go (what nobody waits for); catalogue.go,
// catalogue_named.go and catalogue_s3.go (what can be read, and where may be
// written).
package transfer
