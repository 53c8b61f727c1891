package sqlite

// Locks of the open file, not of the process, so that two stores of one
// process take turns as well. Their numbers are those of the system's fcntl.h.
const (
	setLock = 90 // F_OFD_SETLK
	getLock = 92 // F_OFD_GETLK
)
