package flows_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// alone are cases that leave the machine little for others.
var alone = []play{{"F15_FiveHundredMegabytesUnderALimitOfSixtyFour", f15}}

// f15 is about the size of what is moved, which must not be that of the node.
func f15(t *testing.T) {
	const megabytes = 500
	block := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{15}).Read(block) // it never fails
	sum := sha256.New()
	for range megabytes {
		sum.Write(block)
	}
	big := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(megabytes<<20))
		for range megabytes {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	t.Cleanup(big.Close)
	p := newPlane(t, 1<<10)
	p.datasets = fmt.Sprintf("    - {id: big, http: {url: %q}}\n", big.URL)
	p.environ = []string{"GOMEMLIMIT=64MiB"}
	a := p.start("a")[0]
	before := peak(t, a.Pid())
	m := push("f15", toFile("out", "f15"))
	m["datasetId"] = "big"
	if r := a.ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	got := a.becomes("f15", "COMPLETED")
	if got.json["sha256"] != hex.EncodeToString(sum.Sum(nil)) || got.json["bytes"] != float64(megabytes<<20) {
		t.Errorf("status = %s", got)
	}
	if info, err := os.Stat(filepath.Join(p.dir, "out", "f15")); err != nil || info.Size() != megabytes<<20 {
		t.Errorf("the sink: %v, %v", info, err)
	}
	if grown := peak(t, a.Pid()) - before; grown > 64<<10 && !raceDetector {
		t.Errorf("the node's peak grew by %d KiB", grown)
	} else {
		t.Logf("the node's peak grew by %d KiB, from %d", grown, before)
	}
}

// peak is the most memory that a process ever had, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			n, err := strconv.Atoi(string(bytes.Fields(value)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the system does not say")
	return 0
}
