// Package tests holds what is true of the whole and of no single package.
//
// # Promises
//
// The laws of the source tree are tests: who may import whom (imports_test.go)
// and what a file may look like (hygiene_test.go). What the documents say is
// true (docs_test.go), and what README.md says is run (readme_test.go and the
// files beside it, which need curl). Tests of behaviour treat the system as a
// black box: they start the built binary, talk to it over real sockets and look
// into its store.
//
// # Imports
//
// The standard library, records, and the PostgreSQL store with its harness.
// Nothing imports this package.
package tests
