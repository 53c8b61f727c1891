package main

import "syscall"

// childAttributes make the kernel kill a node when the demo itself is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
