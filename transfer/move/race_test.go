//go:build unix && race

package move_test

// The race detector keeps several bytes about each byte of the program.
const memoryFactor = 5
