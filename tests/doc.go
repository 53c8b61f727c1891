// Package tests holds what is true of the whole and of no single package.
//
// # Promises
//
// The laws of the source tree are tests: who may import whom (imports_test.go)
// and what a file may look like (hygiene_test.go). Tests of behaviour treat
// the system as a black box: they start the built binary, talk to it over real
// sockets and look into its store.
//
// # Imports
//
// The standard library, records, and the PostgreSQL store with its harness.
// Nothing imports this package.
package tests
