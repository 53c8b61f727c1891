// Package flows tests the data plane from outside: nodes are processes of the
// built binary, sources and sinks are real, and the control plane is a small
// one that speaks the specification strictly: it refuses any callback that its
// JSON schemas do not allow, and answers 401, 404, 409 or 5xx when told to.
//
// # Imports
//
// Its tests import packages tests/fleet, records/postgres/postgrestest and
// transfer/move/s3test, and a JSON Schema library.
//
// # Reading order
//
// fleet_test.go (nodes, and what they are told), source_test.go,
// controlplane_test.go; conformance_test.go, the tables, and data_test.go, what
// others come for or with; cases_test.go, cases_death_test.go and
// memory_*_test.go, what happened to users of comparable systems;
// s3_test.go, what is different with objects; named_test.go, sources that
// messages name; commands_test.go, what operators do; metrics_test.go, what is
// counted. bench_test.go is what moving data costs; docs/benchmarks.md has its
// numbers. race_test.go and norace_test.go tell how the binary is to be built.
package flows
