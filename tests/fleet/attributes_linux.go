package fleet

import "syscall"

// attributes make the kernel kill the child when the test binary dies, also
// if the child stands still.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
