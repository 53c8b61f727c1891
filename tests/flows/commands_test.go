//go:build unix

package flows_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command runs probate beside the nodes and returns what it printed.
func (p *plane) command(args ...string) (string, error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), probate(p.t), append(args, "--config", filepath.Join(p.dir, "a.yaml"))...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestCommands is about what an operator sees and does.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := newPlane(t, size)
	a := p.start("a")[0]
	p.begins(a, "running")
	a.ask(http.MethodPost, "/dataflows/prepare", message("prepared", httpPull, nil))

	t.Run("ListAndShowTellWhatIsThereAndNoSecret", func(t *testing.T) {
		out, err := p.command("flows", "list", "-o", "json")
		var listed struct {
			Flows []struct{ Flow, State, Dataset string }
		}
		if err != nil || json.Unmarshal([]byte(out), &listed) != nil || len(listed.Flows) != 2 || listed.Flows[1].State != "STARTED" {
			t.Errorf("list: %v\n%s", err, out)
		}
		if out, err := p.command("flows", "show", "running"); err != nil || !strings.Contains(out, "STARTED") || strings.Contains(out, "Bearer") {
			t.Errorf("show: %v\n%s", err, out)
		}
		if out, err := p.command("flows", "show", "nobody"); err == nil {
			t.Errorf("show of nothing: %s", out)
		}
	})
	t.Run("TerminateStopsTheBytes", func(t *testing.T) {
		for _, id := range []string{"running", "prepared"} {
			if out, err := p.command("flows", "terminate", id, "--reason", "an operator's"); err != nil || !strings.Contains(out, "TERMINATED") {
				t.Fatalf("terminate %s: %v\n%s", id, err, out)
			}
			if r := a.status(id); r.state() != "TERMINATED" || r.json["error"] != "an operator's" {
				t.Errorf("status = %s", r)
			}
		}
		p.holds("out")
		if out, err := p.command("flows", "terminate", "running", "--reason", "again"); err == nil {
			t.Errorf("terminate of what has ended: %s", out)
		}
	})
}
