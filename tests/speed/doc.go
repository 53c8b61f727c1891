// Package speed measures what the layer costs, and what it saves, side by side
// with what one would have without it.
//
// # Promises
//
// Both sides of a comparison run in the same benchmark, by turns, under the
// same load over real HTTP on loopback. An iteration is one round: every side
// once, in an order that changes. What is reported is the median of the rounds
// for each side, and the median of the rounds' ratios. So `-benchtime 9x` is
// nine short rounds, and what else the machine does falls on all sides alike.
//
// Whether a speed is enough is for the reader to judge; nothing here fails
// because the machine was busy. Memory is another matter: what must fit and
// does not is a failure.
//
// # Not promised
//
// The load generator shares the processors with what it measures. It does next
// to nothing, so that the difference between the sides is not hidden in it.
//
// # Imports
//
// Nothing but tests: api, takeover, probe, records and the PostgreSQL store
// with its harness, put together as a Go service would; the harness of
// tests/fleet for the built binary; chi and lib/pq for what others would write.
//
// # Reading order
//
// load_test.go and rounds_test.go (how it is measured); service_test.go,
// naive_test.go and node_test.go (what is); first_test.go, replay_test.go,
// pass_test.go; serve_linux_test.go, waiting_linux_test.go, soak_linux_test.go
// (the built binary's memory).
package speed
