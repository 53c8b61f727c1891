//go:build unix

package move_test

const childRole = "MOVE_TEST_CHILD"

func child(string) int { return 0 }
