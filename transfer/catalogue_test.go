package transfer

import (
	"strings"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	t.Run("HasAPlaceOfItsOwnForEveryID", func(t *testing.T) {
		t.Parallel()
		c, err := Catalogue{Roots: []Root{{Name: "in", Path: t.TempDir(), Write: true}}, ReceiveIn: "in"}.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		seen := map[string]string{}
		for _, id := range []string{"a", "a/b", "a%2Fb", ".", "..", strings.Repeat("x", 255), strings.Repeat("x", 254) + "y", strings.Repeat("ä", 127)} {
			sink, err := c.Inbox(Task{Prepare: &Message{ProcessID: id}})
			if err != nil {
				t.Fatal(err)
			}
			file, ok := sink.(move.FileSink)
			if !ok || seen[file.Path] != "" {
				t.Errorf("%q and %q are both received at %q", id, seen[file.Path], file.Path)
			}
			seen[file.Path] = id
			part, err := sink.Begin(t.Context(), move.Start{Identity: move.Identity{Flow: id, Epoch: 1}, Length: 0})
			if err != nil {
				t.Errorf("receive %q: %v", id, err)
				continue
			}
			if err := part.Commit(t.Context()); err != nil {
				t.Errorf("receive %q: %v", id, err)
			}
		}
	})
}

func TestHTTPSink(t *testing.T) {
	t.Parallel()
	t.Run("RefusesATokenThatIsNoHeader", func(t *testing.T) {
		t.Parallel()
		c, err := Catalogue{Sinks: Sinks{HTTP: []string{"*"}}}.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for token, good := range map[string]bool{"T": true, "T\r\nX: y": false, "T\x00": false} {
			to := &DataAddress{EndpointType: "http", Endpoint: "http://sink.example/in", Properties: []EndpointProperty{{Name: "authorization", Value: token}}}
			if _, err := c.Sink(Task{Start: &Message{ProcessID: "f", DataAddress: to}}); (err == nil) != good {
				t.Errorf("%q: %v", token, err)
			}
		}
	})
}
