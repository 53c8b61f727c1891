// Package s3test runs a real S3-compatible server for tests: versitygw, over a
// folder of the test.
//
// The server is built from its Go module when it is first needed and kept in
// the go command's own cache, so only the first test on a machine waits for
// it, about a minute. Its version and the checksums of everything in it are in
// testdata, as a module of its own: the program has two hundred dependencies
// that are not to become ours. They are embedded under other names because a
// folder with a go.mod cannot be.
//
// # Imports
//
// The standard library and tests/fleet, which keeps the process.
package s3test
