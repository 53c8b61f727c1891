package takeover_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if a goroutine is left once all nodes have
// returned. Most tests spend their time waiting for a timeout of their own, so
// more of them may run at once than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	// A server lingers for half a second, on purpose and for longer than is waited
	// here, after it has refused the rest of a body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// TestCase holds faults that users of other systems have reported, each named
// after its number in the project's list.
func TestCase(t *testing.T) {
	t.Parallel()
	coordinatorCases(t)
	outcomeCases(t)
	leaseCases(t)
	drainCases(t)
	reconcileCases(t)
	suspicionCases(t)
	costCases(t)
	socketCases(t)
	postgresCases(t)
}
