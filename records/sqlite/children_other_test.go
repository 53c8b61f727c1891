//go:build !linux && !darwin

package sqlite_test

// runChild: no test starts processes here.
func runChild(string) int { return 2 }
