// Package probe asks an executor whether it is alive, and answers when it is
// asked.
//
// # Promises
//
// A [Verdict] says no more than what was observed. Only a statement that the
// asked executor itself signed, over a nonce made for this question, says that
// it runs a record or does not; everything else that may happen on a network
// is one of [Down], [Silent], [Stranger] and [Unknown], as each constant
// tells. The zero Verdict is Unknown.
//
// A [Client] connects to nothing but the address of the executor that it was
// given: no proxies, no redirects, no cookies, and every address is checked
// against the allow-list when the socket connects, after names were resolved.
// It reads a bounded number of bytes and every question ends by a deadline.
//
// A [Handler] changes nothing and waits for nobody but the record asked
// about. What it knows it reads from memory through the one-method interfaces
// it declares; it cannot reach a store. The one request that it sends is the
// probe of a witness, to an executor that it knows already.
//
// A [Confirmer] turns one failed probe into a conclusion. When it says
// [Confirmed], then every question since was unanswered for as long as the
// evidence demands, and a peer, if one is alive, has just said the same over
// its own network path.
//
// # Not promised
//
// Confirmed is not dead. A process may be cut off from everyone and still
// work; that is why a fence compares heartbeats, and why the fence, not this
// package, decides. A proxy that rewrites nothing and admits nothing cannot be
// told from the executor behind it.
//
// # Imports
//
// The standard library, package records, chi for routes, cenkalti/backoff for
// the intervals between questions. No SQL, no store, no other package of this
// module.
//
// # Reading order
//
// verdict.go, message.go, address.go, client.go, transport.go, classify.go,
// judge.go, watch.go, links.go, handler.go, answer.go, limits.go, server.go, suspicion.go, confirm.go.
package probe
