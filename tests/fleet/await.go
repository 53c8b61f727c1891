//go:build unix

package fleet

import (
	"testing"
	"time"
)

// patience is how long a condition may take. It is generous, since nothing is
// judged by it but whether a test has hung.
const patience = 60 * time.Second

// Await polls until a condition holds.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
