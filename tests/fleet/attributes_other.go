//go:build unix && !linux

package fleet

import "syscall"

// attributes ask nothing of the kernel: the child watches its standard input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
