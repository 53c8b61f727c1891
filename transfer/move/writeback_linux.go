//go:build !arm

package move

import (
	"os"
	"syscall"
)

// writeBack asks the kernel to begin with writing a piece of the file to disc,
// so that the sync at the end finds little left to do and the disc does not
// idle while the bytes arrive. It is advice: an error of it means nothing.
func writeBack(f *os.File, from, n int64) {
	const begin = 2 // SYNC_FILE_RANGE_WRITE
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), from, n, begin) })
}
