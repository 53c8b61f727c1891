//go:build unix

package flows_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// play is one case.
type play struct {
	name string
	play func(t *testing.T)
}

// TestCase plays what happened to the users of comparable systems.
func TestCase(t *testing.T) {
	for _, c := range alone {
		t.Run(c.name, c.play)
	}
	t.Parallel()
	for _, c := range []play{
		{"F01_ASlowCopyAndItsDuplicatesReadTheSourceOnce", f01},
		{"F02_ADuplicateWhileItRunsFindsIt", f02},
		{"F03_ADuplicateAfterTheEndMovesNothing", f03},
		{"F04_ConcurrentStartsOnTwoNodesMakeOneFlow", f04},
		{"F05_TheOwnerIsKilledMidCopyAndTheStartIsRepeatedElsewhere", f05},
		{"F05_TheOwnerIsKilledMidCopyOverPostgreSQL", f05Postgres},
		{"F05_TheOwnerIsKilledMidCopyAndNobodyAsks", f05Unasked},
		{"F05_TheOwnerOfADiskOfItsOwnIsKilled", f05Bound},
		{"F05_TheOwnerLeavesMidCopy", f05Drain},
		{"F07_ProgressNeverTakesBackAnEnd", f07},
		{"F09_TheControlPlaneIsAwayAtTheEnd", f09},
		{"F10_TerminateAtANodeThatDoesNotOwnTheFlow", f10},
		{"F10_SuspendAtANodeThatDoesNotOwnTheFlow", f10Suspend},
		{"F10_TerminateAfterTheOwnerDied", f10Dead},
		{"F11_AnOwnerThatWasPausedCommitsNothing", f11},
		{"F13_ASourceThatDiesMidBody", f13},
		{"F17_TheSameIDForSomethingElse", f17},
		{"F20_AFlowThatKillsEveryNodeIsGivenUp", f20},
		{"F24_MessagesThatAreRepeated", f24},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t)
		})
	}
}

const size = 4 << 20

// begins starts a push to a file of root out, and waits until half of it has
// been moved.
func (p *plane) begins(n *node, id string) {
	p.t.Helper()
	p.from.allow(size / 4)
	if r := n.ask(http.MethodPost, "/dataflows/start", push(id, toFile("out", id))); r.status != http.StatusOK || r.state() != "STARTED" {
		p.t.Fatalf("start: %s", r)
	}
	p.half(n, id)
}

// half lets a flow come half way, so slowly that it leaves a checkpoint behind.
func (p *plane) half(n *node, id string) {
	p.t.Helper()
	at := size / 4
	within(p.t, id+" leaves a checkpoint", func() bool {
		at = min(at+(8<<10), size/2)
		p.from.allow(at)
		safe, _ := n.status(id).json["safeBytes"].(float64)
		return safe > 0
	})
	p.from.allow(size / 2)
}

// repeated demands the answer to a start that was repeated.
func repeated(t testing.TB, r reply, id, state string) {
	t.Helper()
	if r.status != http.StatusOK || r.json["dataFlowId"] != id || r.state() != state || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated start: %s, replayed %q; want %s %s", r, r.header.Get("Idempotent-Replayed"), id, state)
	}
}

func f01(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f01")
	for i := range 6 {
		repeated(t, nodes[i%2].ask(http.MethodPost, "/dataflows/start", push("f01", toFile("out", "f01"))), "f01", "STARTED")
	}
	p.from.allow(size)
	nodes[1].becomes("f01", "COMPLETED")
	if opens, _, sent, _ := p.from.counts(); opens != 1 || sent != size {
		t.Errorf("the source was opened %d times for %d bytes, want once for %d", opens, sent, size)
	}
	p.whole("out", "f01")
}

func f02(t *testing.T) {
	p := newPlane(t, size)
	a := p.start("a")[0]
	p.begins(a, "f02")
	repeated(t, a.ask(http.MethodPost, "/dataflows/start", push("f02", toFile("out", "f02"))), "f02", "STARTED")
	if opens, _, _, _ := p.from.counts(); opens != 1 {
		t.Errorf("the source was opened %d times", opens)
	}
}

func f03(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	bad := push("fatal", toFile("out", "fatal"))
	bad["metadata"] = map[string]any{"sha256": fmt.Sprintf("%064d", 0)}
	good := push("good", toFile("out", "good"))
	for _, m := range []map[string]any{good, bad} {
		if r := nodes[0].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
	}
	nodes[0].becomes("good", "COMPLETED")
	nodes[0].becomes("fatal", "TERMINATED")
	_, _, before, _ := p.from.counts()
	for _, n := range nodes {
		repeated(t, n.ask(http.MethodPost, "/dataflows/start", good), "good", "COMPLETED")
		r := n.ask(http.MethodPost, "/dataflows/start", bad)
		repeated(t, r, "fatal", "TERMINATED")
		if reason, _ := r.json["error"].(string); reason == "" {
			t.Errorf("no reason is given: %s", r)
		}
	}
	if _, _, after, _ := p.from.counts(); after != before {
		t.Errorf("%d bytes were moved again", after-before)
	}
	p.whole("out", "good")
	p.control.hears("good", "completed")
	p.control.hears("fatal", "errored")
}

func f04(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	replies := make([]reply, 8)
	var asking sync.WaitGroup
	for i := range replies {
		asking.Go(func() {
			replies[i], _ = nodes[i%2].try(t.Context(), http.MethodPost, "/dataflows/start", push("f04", toFile("out", "f04")), token)
		})
	}
	asking.Wait()
	for _, r := range replies {
		if r.status != http.StatusOK || r.json["dataFlowId"] != "f04" || r.state() != "STARTED" && r.state() != "COMPLETED" {
			t.Errorf("answer = %s", r)
		}
	}
	if got := nodes[0].becomes("f04", "COMPLETED"); got.json["attempts"] != float64(1) {
		t.Errorf("status = %s, want one execution", got)
	}
	if opens, _, _, _ := p.from.counts(); opens != 1 {
		t.Errorf("the source was opened %d times", opens)
	}
	p.whole("out", "f04")
}

func f07(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	for i := range 10 {
		id := fmt.Sprintf("f07-%d", i)
		if r := nodes[i%2].ask(http.MethodPost, "/dataflows/start", push(id, toFile("out", id))); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
	}
	for i := range 10 {
		id := fmt.Sprintf("f07-%d", i)
		nodes[0].becomes(id, "COMPLETED")
		for _, n := range nodes {
			if r := n.status(id); r.state() != "COMPLETED" || r.json["bytes"] != float64(size) {
				t.Errorf("%s went back: %s", id, r)
			}
		}
		p.control.hears(id, "completed")
	}
}

func f09(t *testing.T) {
	p := newPlane(t, size)
	p.control.answer("completed", 404, 503, 401, 409, 0, 500)
	p.control.isAway(true)
	a := p.start("a")[0]
	p.begins(a, "f09")
	p.from.allow(size)
	a.becomes("f09", "COMPLETED")
	within(t, "the first callbacks fail", func() bool { return p.control.tried("completed") >= 2 })
	if r := a.status("f09"); r.state() != "COMPLETED" || r.json["undelivered"] == nil {
		t.Errorf("status = %s, want COMPLETED and a callback that waits", r)
	}
	a.Kill()
	a = p.restart("a")
	p.control.isAway(false)
	p.control.hears("f09", "completed")
	within(t, "nothing waits any more", func() bool { return a.status("f09").json["undelivered"] == nil })
	if r := a.status("f09"); r.state() != "COMPLETED" {
		t.Errorf("status = %s", r)
	}
}

func f10(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f10")
	r := nodes[1].ask(http.MethodPost, "/dataflows/f10/terminate", map[string]any{"messageId": "m", "reason": "no longer wanted"})
	if r.status != http.StatusOK {
		t.Fatalf("terminate: %s", r)
	}
	p.holds("out") // when the answer is there, nothing is left
	if got := nodes[0].status("f10"); got.state() != "TERMINATED" || got.json["error"] != "no longer wanted" {
		t.Errorf("status = %s", got)
	}
	p.from.allow(size)
	within(t, "nobody reads the source", func() bool { _, _, _, reading := p.from.counts(); return reading == 0 })
	if opens, _, _, _ := p.from.counts(); opens != 1 {
		t.Errorf("the source was opened %d times", opens)
	}
	p.holds("out")
	if r := nodes[1].ask(http.MethodPost, "/dataflows/f10/terminate", map[string]any{"messageId": "m"}); r.status != http.StatusConflict {
		t.Errorf("terminate of what has ended: %s", r)
	}
	if events := p.control.heard("f10"); events != "" {
		t.Errorf("the control plane, which ordered it, was told %s", events)
	}
}

func f10Suspend(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f10")
	if r := nodes[1].ask(http.MethodPost, "/dataflows/f10/suspend", map[string]any{"messageId": "m", "reason": "lunch"}); r.status != http.StatusOK {
		t.Fatalf("suspend: %s", r)
	}
	within(t, "nobody reads the source", func() bool { _, _, _, reading := p.from.counts(); return reading == 0 })
	p.from.allow(size)
	for _, n := range nodes {
		if r := n.status("f10"); r.state() != "SUSPENDED" {
			t.Errorf("status = %s", r)
		}
	}
	if r := nodes[1].ask(http.MethodPost, "/dataflows/f10/resume", map[string]any{"messageId": "m2"}); r.status != http.StatusOK || r.state() != "STARTED" && r.state() != "COMPLETED" {
		t.Fatalf("resume: %s", r)
	}
	p.taken(nodes[0], "f10")
}

func f10Dead(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f10")
	nodes[0].Kill()
	within(t, "the other node ends it", func() bool {
		r := nodes[1].ask(http.MethodPost, "/dataflows/f10/terminate", map[string]any{"messageId": "m"})
		if r.status != http.StatusOK && r.status != http.StatusServiceUnavailable && r.status != http.StatusConflict {
			t.Fatalf("terminate: %s", r)
		}
		return nodes[1].status("f10").state() == "TERMINATED"
	})
	p.holds("out")
}

func f11(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f11")
	nodes[0].Stop(t)
	// Its peer cannot tell a stopped process from a vanished host: it confirms,
	// and takes over.
	within(t, "the other node takes it over", func() bool { return nodes[1].status("f11").json["attempts"] == float64(2) })
	p.from.allow(size)
	nodes[1].becomes("f11", "COMPLETED")
	p.whole("out", "f11")
	before := nodes[1].status("f11")
	nodes[0].Cont(t)
	within(t, "the paused owner finds itself fenced", func() bool { return len(nodes[0].Output.Said("registered")) > 1 || nodes[0].Ended() })
	after := nodes[1].status("f11")
	for _, member := range []string{"state", "epoch", "attempts", "bytes", "sha256", "executor"} {
		if after.json[member] != before.json[member] {
			t.Errorf("status was %s and is %s", before, after)
		}
	}
	p.whole("out", "f11")
	p.control.hears("f11", "completed")
}

func f13(t *testing.T) {
	p := newPlane(t, size)
	p.extra = "  rounds: 1\n"
	a := p.start("a")[0]
	p.from.breakAfter(size / 4)
	p.from.forgetful()
	if r := a.ask(http.MethodPost, "/dataflows/start", push("f13", toFile("out", "f13"))); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	if got := a.becomes("f13", "TERMINATED"); got.json["error"] == nil {
		t.Errorf("status = %s, want the reason", got)
	}
	p.holds("out")
	p.control.hears("f13", "errored")
}

func f17(t *testing.T) {
	p := newPlane(t, size)
	nodes := p.start("a", "b")
	p.begins(nodes[0], "f17")
	before := nodes[1].status("f17")
	for name, change := range map[string]any{
		"dataAddress": toFile("out", "elsewhere"), "datasetId": "file", "agreementId": "another", "metadata": map[string]any{"a": 1},
	} {
		m := push("f17", toFile("out", "f17"))
		m[name] = change
		if r := nodes[1].ask(http.MethodPost, "/dataflows/start", m); r.status != http.StatusConflict || r.code() != "flow_exists" {
			t.Errorf("another %s: %s", name, r)
		}
	}
	if after := nodes[1].status("f17"); after.json["state"] != before.json["state"] || after.json["epoch"] != before.json["epoch"] {
		t.Errorf("status was %s and is %s", before, after)
	}
	p.from.allow(size)
	nodes[0].becomes("f17", "COMPLETED")
	p.holds("out", "f17")
}

func f24(t *testing.T) {
	p := newPlane(t, size)
	a := p.start("a")[0]
	p.begins(a, "f24")
	same, other := push("f24", toFile("out", "f24")), push("f24", toFile("out", "f24"))
	other["messageId"] = "another"
	other["callbackAddress"] = p.control.url
	for _, m := range []map[string]any{same, other} {
		repeated(t, a.ask(http.MethodPost, "/dataflows/start", m), "f24", "STARTED")
	}
	p.from.allow(size)
	if got := a.becomes("f24", "COMPLETED"); got.json["attempts"] != float64(1) {
		t.Errorf("status = %s, want one execution", got)
	}
	repeated(t, a.ask(http.MethodPost, "/dataflows/start", same), "f24", "COMPLETED")
}
