//go:build unix

package move_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if a goroutine is left once all copies have
// returned. The program is also its own child, for what has to be measured or
// limited in a process apart.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}
