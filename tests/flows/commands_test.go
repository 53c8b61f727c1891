//go:build unix

package flows_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
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
			p.control.hears(id, "errored")
		}
		p.holds("out")
		if out, err := p.command("flows", "terminate", "running", "--reason", "again"); err == nil {
			t.Errorf("terminate of what has ended: %s", out)
		}
	})
}

// TestOperators is about what they see and do through a node: also one that does
// not move the bytes.
func TestOperators(t *testing.T) {
	t.Parallel()
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	const id = "an id/with all?sorts"
	p.from.allow(size / 2)
	m := push(id, toFile("out", "f"))
	if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	asking := func(token string, args ...string) (string, error) {
		return p.command(append(args, "--node", nodes[1].Internal, "--token", token)...)
	}

	t.Run("WhoMayReadSeesFlowsAndChangesNone", func(t *testing.T) {
		out, err := asking(evesToken, "flows", "list", "--state", "STARTED", "-o", "json")
		var listed struct {
			Flows []struct{ Flow, State string }
		}
		if err != nil || json.Unmarshal([]byte(out), &listed) != nil || len(listed.Flows) != 1 || listed.Flows[0].Flow != id {
			t.Errorf("list: %v\n%s", err, out)
		}
		if out, err := asking(evesToken, "flows", "show", id); err != nil || !strings.Contains(out, "STARTED") {
			t.Errorf("show: %v\n%s", err, out)
		}
		if out, err := asking(evesToken, "flows", "terminate", id, "--reason", "not mine"); err == nil || !strings.Contains(out, "role operate") {
			t.Errorf("terminate: %v\n%s", err, out)
		}
		if out, err := asking("somebody's token", "flows", "list"); err == nil || !strings.Contains(out, "401") {
			t.Errorf("list without a token: %v\n%s", err, out)
		}
	})
	t.Run("TerminateThroughANodeStopsTheBytesAndIsWrittenDown", func(t *testing.T) {
		for range 2 { // the second is a repeat, and changes nothing
			if out, err := asking(adasToken, "flows", "terminate", id, "--reason", "INC-42"); err != nil || !strings.Contains(out, "TERMINATED") {
				t.Fatalf("terminate: %v\n%s", err, out)
			}
		}
		if r := nodes[0].status(url.PathEscape(id)); r.state() != "TERMINATED" || r.json["error"] != "INC-42" {
			t.Errorf("status = %s", r)
		}
		p.holds("out")
		if out, err := asking(adasToken, "flows", "terminate", id, "--reason", "for another reason"); err == nil {
			t.Errorf("terminate of what has ended: %s", out)
		}
		if said := nodes[1].Output.Said("changed by an operator"); len(said) != 1 {
			t.Errorf("the log has %d lines: %v", len(said), said)
		}
		p.noted(nodes[1], "ada", "INC-42", "STARTED")
		p.control.hears(id, "errored")
		if said := p.control.said(id); !strings.Contains(said, `"error":"INC-42"`) || strings.Contains(said, "ada") {
			t.Errorf("the control plane was told %s", said)
		}
	})
	t.Run("TerminateStraightOnTheStoreIsWrittenDown", func(t *testing.T) {
		nodes[0].ask(http.MethodPost, "/dataflows/prepare", message("prepared", httpPull, nil))
		if out, err := p.command("flows", "terminate", "prepared", "--reason", "INC-43", "--operator", "eve"); err != nil {
			t.Fatalf("terminate: %v\n%s", err, out)
		}
		p.noted(nodes[1], "ada", "INC-42", "STARTED", "eve", "INC-43", "PREPARED")
		p.control.hears("prepared", "errored")
	})
}

// TestTerminateOfWhatNobodyStops is about an operator who does not wait for as
// long as it takes.
func TestTerminateOfWhatNobodyStops(t *testing.T) {
	t.Parallel()
	p := newPlane(t, size)
	p.store = postgrestest.Database(t) // who stands still in a transaction holds up a file
	nodes := p.start("a")
	p.begins(nodes[0], "f")
	nodes[0].Stop(t)
	out, err := p.command("flows", "terminate", "f", "--reason", "INC-42", "--wait", "300ms", "--operator", "ada")
	if err == nil || !strings.Contains(out, "written down") || !strings.Contains(out, "STARTED") {
		t.Errorf("terminate: %v\n%s", err, out)
	}
	nodes[0].Cont(t)
	p.from.allow(size)
	within(t, "it is ended", func() bool { return nodes[0].status("f").state() == "TERMINATED" })
	p.control.hears("f", "errored")
	p.holds("out")
}

// noted demands what the audit says of flows that operators ended: who, why, and
// from which state.
func (p *plane) noted(n *node, want ...string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, n.Internal+"/v1/events?kind=terminated", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+evesToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Events []struct{ Record, Actor, Reason, Before, After string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		p.t.Fatal(err)
	}
	var got []string
	for _, e := range list.Events {
		got = append(got, e.Actor, e.Reason, e.Before)
		if e.After != "TERMINATED" || len(e.Record) != 64 {
			p.t.Errorf("event %+v", e)
		}
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("the audit says %q, want %q", got, want)
	}
}
