//go:build unix && !race

package move_test

const memoryFactor = 1
