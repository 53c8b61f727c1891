//go:build unix && race

package flows_test

const raceDetector = true
