//go:build unix && !linux

package flows_test

// alone is empty where the system does not tell the peak of a process.
var alone []play
