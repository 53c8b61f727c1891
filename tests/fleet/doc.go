// Package fleet runs fleets of real processes and does to them what happens to
// processes: they are killed, stopped, continued and told to leave; their
// links to the store and to each other fail.
//
// # Promises
//
// A [Node] is a process of its own, started by the test, reached over real
// sockets and signalled by its pid. A [Fleet] is several over one real
// PostgreSQL. A [Ledger] is the service behind them: it counts effects, holds
// requests until it is told to go on, answers reconcile queries and refuses
// smaller epochs. A [Relay] is a TCP link that can freeze or be cut; a [Lab],
// on Linux, is a network in which one host can fall silent.
//
// No process outlives the test: it is killed when the test ends, when the test
// binary dies (by the kernel on Linux), and when its standard input closes. No
// process is signalled that the test did not start.
//
// The harness waits for conditions, each with a deadline; it never sleeps and
// judges nothing by how long it took.
//
// # Not promised
//
// The tests of this package start the test binary itself as the node, a thin
// program over package takeover (main_test.go, node_test.go). A [Program]
// starts any other binary that logs where it listens.
//
// # Imports
//
// testing, records, and the harness of records/postgres. The tests also import
// what the node is made of: takeover, probe, records/postgres.
//
// # Reading order
//
// build.go, process.go, signals.go, output.go, node.go, client.go, fleet.go, sight.go,
// ledger.go, relay.go, lab_linux.go, await.go.
package fleet
