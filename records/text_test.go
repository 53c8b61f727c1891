package records_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestText(t *testing.T) {
	t.Parallel()
	id := records.Key{Realm: "shop", Principal: "alice", Key: "k"}.ID()
	fence := records.Fence{Executor: records.ExecutorID{0xab}, Epoch: 7}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"IsReadableInJSONLogs": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"IsReadableInTextLogs": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			slog.New(handler(&b)).Info("claimed", "record", id, "executor", fence.Executor, "fence", fence)
			for _, want := range []string{id.String(), fence.Executor.String(), fence.String()} {
				if strings.Count(b.String(), want) == 0 {
					t.Errorf("%q does not show %s", b.String(), want)
				}
			}
		})
	}
}
