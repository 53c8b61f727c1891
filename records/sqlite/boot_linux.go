package sqlite

import (
	"os"
	"strings"
)

// hostBootID is the kernel's own: the same in every container of a host, and
// new after a reboot.
func hostBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
