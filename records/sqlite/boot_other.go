//go:build !linux && !darwin

package sqlite

import "os"

// hostBootID falls back on the host's name where the kernel offers no id of
// its run. Two hosts of one name are not told apart.
func hostBootID() (string, error) { return os.Hostname() }
