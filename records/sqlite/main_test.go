package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childRole in the environment makes the test binary one of the processes of a
// test instead of running tests.
const childRole = "PROBATE_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role))
	}
	// A server lingers for half a second, on purpose and for longer than is waited
	// here, after it has refused the rest of a body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
