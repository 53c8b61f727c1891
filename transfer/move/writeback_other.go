//go:build !linux || arm

package move

import "os"

// writeBack: elsewhere the system decides by itself when to begin.
func writeBack(*os.File, int64, int64) {}
