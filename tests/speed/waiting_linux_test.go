package speed_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

const (
	waiting     = 10_000
	waitingKeys = 10 // a key has a thousand waiters at most
	waitingRoom = 300 * megabyte
)

// BenchmarkWaitingDuplicates has ten thousand duplicates wait at one gateway,
// each on a connection of its own, and fails if the process then needs more
// memory than it may, or if one of them does not get the answer.
func BenchmarkWaitingDuplicates(b *testing.B) {
	for b.Loop() {
		crowd(b)
	}
}

func crowd(b *testing.B) {
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	upstream := listen(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		pay(w, r)
	}))
	b.Cleanup(free) // before the service is closed
	n := serve(b, postgrestest.Shared(b).Database(b), "http://"+upstream)
	before := resident(b, n.Pid())

	streams := make([]*stream, waiting+waitingKeys) // the first of a key executes
	for i := range streams {
		s, err := dial(b.Context(), n.Spec.Public, true)
		if err != nil {
			b.Fatal(err)
		}
		defer s.conn.Close()
		streams[i] = s
		if err := s.send(keyOf('w', int64(i%waitingKeys))); err != nil {
			b.Fatal(err)
		}
	}
	fleet.Await(b, "all wait", func() bool { return waiters(b, n.Internal) == fmt.Sprint(waiting) })
	held := resident(b, n.Pid())
	free()
	for _, s := range streams {
		head, err := s.receive()
		if err != nil || !bytes.HasPrefix(head, []byte("HTTP/1.1 201 ")) {
			b.Fatalf("a duplicate got %v\n%s", err, head)
		}
	}
	b.ReportMetric(float64(held)/megabyte, "MB")
	b.ReportMetric(float64(before)/megabyte, "MB-before")
	b.ReportMetric(float64(held-before)/waiting, "B/waiter")
	if float64(held) > waitingRoom {
		b.Errorf("%d waiting duplicates need %d MB", waiting, held/megabyte)
	}
}

// waiters is what the node says of how many wait.
func waiters(t testing.TB, internal string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, internal+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "probate_waiters "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatal("the node does not say how many wait")
	return ""
}
