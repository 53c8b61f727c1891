package sealed

import (
	"crypto/rand"
	"fmt"
	"testing"
)

// BenchmarkSeal seals a body, BenchmarkOpen opens it, and each does so without
// keys, where it must cost nothing.
func BenchmarkSeal(b *testing.B) {
	sizes(b, func(b *testing.B, k Keys, value []byte) {
		for to := body("k", 7); b.Loop(); {
			k.sealed(to, value, randomNonce)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	sizes(b, func(b *testing.B, k Keys, value []byte) {
		stored := k.sealed(body("k", 7), value, randomNonce)
		for to := body("k", 7); b.Loop(); {
			if _, err := k.open(to, stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func sizes(b *testing.B, measure func(b *testing.B, k Keys, value []byte)) {
	for _, size := range []int{1, 10, 100, 1000} {
		value := make([]byte, size<<10)
		rand.Read(value)
		for name, k := range map[string]Keys{"": ring(b, "a"), "/without_keys": {}} {
			b.Run(fmt.Sprintf("%dKiB%s", size, name), func(b *testing.B) {
				b.SetBytes(int64(len(value)))
				b.ReportAllocs()
				measure(b, k, value)
			})
		}
	}
}
