package move_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// peakRSS is the most memory that this process ever had, in bytes. The rusage
// of a process would count its parent's from before it became this program.
func peakRSS() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("no VmHWM")
}
