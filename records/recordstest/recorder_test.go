package recordstest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that remembers its failures instead of failing.
type recorder struct {
	testing.TB // for its context, temporary folders and clean-up

	mu     sync.Mutex
	faults []string
}

// verdict runs a rule over stores and returns what it found wrong with them.
func verdict(t testing.TB, r rule, fresh Fresh) []string {
	rec := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { r.check(newFixture(rec, fresh)) }) // FailNow ends the goroutine
	wg.Wait()
	return rec.faults
}

func (r *recorder) note(fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, strings.TrimSpace(fault))
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Error(args ...any)         { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(s string, a ...any) { r.note(fmt.Sprintf(s, a...)) }
func (r *recorder) Fail()                     { r.note("failed") }

func (r *recorder) FailNow() {
	r.note("failed at once")
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(s string, a ...any) {
	r.Errorf(s, a...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}
