package sqlite

import "golang.org/x/sys/unix"

// Locks of the open file, not of the process, so that two stores of one
// process take turns as well.
const (
	setLock = unix.F_OFD_SETLK
	getLock = unix.F_OFD_GETLK
)
