package sqlite

import "golang.org/x/sys/unix"

// hostBootID is the kernel's own, new after a reboot.
func hostBootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }
