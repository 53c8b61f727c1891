package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/probe"
)

func durations(ms ...int) []time.Duration {
	var all []time.Duration
	for _, m := range ms {
		all = append(all, time.Duration(m)*time.Millisecond)
	}
	return all
}

// checksOf are doctor's results by check; of several the worst.
func checksOf(t *testing.T, v map[string]any) map[string]string {
	t.Helper()
	worst := map[string]string{}
	rank := map[string]int{healthy: 1, notChecked: 2, doubtful: 3, sick: 4}
	for _, raw := range v["checks"].([]any) {
		c := raw.(map[string]any)
		name, result := c["check"].(string), c["result"].(string)
		if rank[result] == 0 {
			t.Errorf("result %q", result)
		}
		if rank[result] > rank[worst[name]] {
			worst[name] = result
		}
	}
	return worst
}

func TestDoctor(t *testing.T) {
	t.Parallel()

	t.Run("FindsARunningNodeHealthy", func(t *testing.T) {
		t.Parallel()
		client := browser(t)
		file := configure(t, sqliteStore(t), "http://127.0.0.1:1")
		n := startEmbedded(t, "--config", file)
		ready(t, client, n.public)
		got := checksOf(t, okJSON(t, "doctor", "--config", file, "--internal.listen", strings.TrimPrefix(n.internal, "http://")))
		for _, name := range []string{"configuration", "store", "schema", "peers", "advertise"} {
			if got[name] != healthy {
				t.Errorf("%s: %q", name, got[name])
			}
		}
	})

	t.Run("SaysWhatToDoAboutAPeerThatIsOutOfReach", func(t *testing.T) {
		t.Parallel()
		p := newPeopled(t)
		r := invoke(t, nil, "doctor", "--store", p.store, "--internal.listen", "127.0.0.1:0", "--internal.allow", "127.0.0.0/8")
		if r.code != exitFailed || !strings.Contains(r.out, "slot elsewhere") || !strings.Contains(r.out, "→ this host must reach") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("MissesAFolderOfDataFlows", func(t *testing.T) {
		t.Parallel()
		there, missing := t.TempDir(), filepath.Join(t.TempDir(), "mount")
		file := filepath.Join(t.TempDir(), "probate.yaml")
		text := fmt.Sprintf("listen: 127.0.0.1:0\ndataflows:\n  enabled: true\n  roots:\n    - {name: here, path: %q}\n    - {name: gone, path: %q}\n", there, missing)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke(t, nil, "doctor", "--config", file, "--store", sqliteStore(t), "--internal.listen", "127.0.0.1:0")
		if r.code != exitFailed || !strings.Contains(r.out, "root here is at") || !strings.Contains(r.out, "root gone: stat "+missing) {
			t.Errorf("%+v", r)
		}
	})

	t.Run("ReportsEveryFaultOfTheConfiguration", func(t *testing.T) {
		t.Parallel()
		r := invoke(t, nil, "doctor", "--cluster", "", "--log.level", "loud")
		if r.code != exitFailed || strings.Count(r.out, "failed") != 2 || !strings.Contains(r.out, "--log.level: ") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("FindsNothingWrongBeforeTheFirstStart", func(t *testing.T) {
		t.Parallel()
		out := ok(t, "doctor", "--store", sqliteStore(t), "--internal.listen", "127.0.0.1:0")
		if !strings.Contains(out, "→ it is made when the first node starts here") {
			t.Errorf("%s", out)
		}
	})

	t.Run("SaysThatTheStoreIsAway", func(t *testing.T) {
		t.Parallel()
		r := invoke(t, nil, "doctor", "--store", "postgres://127.0.0.1:1/d?sslmode=disable", "--internal.allow", "127.0.0.0/8", "--internal.listen", "127.0.0.1:0")
		if r.code != exitFailed || !strings.Contains(r.out, "store") || !strings.Contains(r.out, "→ The store did not answer") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("DialsBackThroughTheAdvertisedURL", func(t *testing.T) {
		t.Parallel()
		listen := func() net.Listener {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
		x := &examination{config: defaultConfig()}
		here := listen()
		seen, err := x.standIn(t.Context(), here, "http://"+here.Addr().String())
		if err != nil || !seen.Alive() {
			t.Errorf("its own URL: %+v, %v", seen, err)
		}
		elsewhere := listen()
		seen, err = x.standIn(t.Context(), listen(), "http://"+elsewhere.Addr().String())
		if err != nil || seen.Alive() || seen.Verdict != probe.Silent {
			t.Errorf("another's URL: %+v, %v", seen, err)
		}
	})
}
