package transfer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
)

// toReceive is the message of a push that is to be received here.
var toReceive = strings.Replace(pullMessage, "x-pull", "x-push", 1)

// unprepared is a store in which no flow becomes prepared while it is shut.
type unprepared struct {
	transfer.Store
	shut *atomic.Bool
}

func (u unprepared) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	if m.To == records.FlowPrepared && u.shut.Load() {
		return records.Flow{}, records.ErrUnavailable
	}
	return u.Store.MoveFlow(ctx, m)
}

// preparing is a plane that answers asynchronously and receives pushes.
func preparing(t *testing.T, configure func(p *transfer.Config)) (*rig, *control) {
	c := newControl(t)
	dir := t.TempDir()
	return newRig(t, good, func(p *transfer.Config) {
		p.Async, p.ControlPlane, p.PublicURL, p.Ends = true, c.url, "https://data.example/dataflows", receiving{p.Ends, dir}
		if configure != nil {
			configure(p)
		}
	}), c
}

// leftPreparing makes what a node leaves behind that died before it had prepared
// flow f.
func leftPreparing(t *testing.T, s flowStore) {
	t.Helper()
	var m transfer.Message
	if err := json.Unmarshal([]byte(toReceive), &m); err != nil {
		t.Fatal(err)
	}
	task, err := json.Marshal(transfer.Task{Prepare: &m})
	if err != nil {
		t.Fatal(err)
	}
	key := records.Key{Realm: "dataflow", Principal: "probate/dataflow/v1", Key: "f"}
	_, _, err = s.CreateFlow(t.Context(), records.NewFlow{
		ID: "f", Record: key.ID(), State: records.FlowPreparing, Attempt: records.NewToken(), Profile: "x-push", Dataset: "d", Message: task,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// token is the one in the callback that a flow is prepared.
func (c *control) token(t *testing.T) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.said {
		var m struct{ DataAddress transfer.DataAddress }
		if err := json.Unmarshal([]byte(s[strings.Index(s, "{"):]), &m); err != nil {
			t.Fatal(err)
		}
		if token := m.DataAddress.Property("authorization"); token != "" && strings.Contains(s, "/f/dataflow/prepared") {
			return token
		}
	}
	t.Fatalf("no token was told: %q", c.said)
	return ""
}

// send pushes to flow f and returns the status.
func (r *rig) send(token string) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, r.url+"/f/data", strings.NewReader("bytes"))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	t.Run("IsAnsweredBeforeItIsDoneAndTheAddressIsTold", func(t *testing.T) {
		t.Parallel()
		r, c := preparing(t, nil)
		status, header, body := r.exchange(http.MethodPost, "/prepare", toReceive)
		if status != http.StatusAccepted || header.Get("Location") != "/dataflows/f/status" || !strings.Contains(body, `"state":"PREPARING"`) || strings.Contains(body, "dataAddress") {
			t.Fatalf("prepare: %d %s, Location %q", status, body, header.Get("Location"))
		}
		r.becomes("f", "PREPARED")
		r.await("it is told", func() bool { return c.told("/f/dataflow/prepared", `"state":"PREPARED"`, `"dataFlowId":"f"`) == 1 })
		if status := r.send(c.token(t)); status != http.StatusOK {
			t.Errorf("a push with the token that was told: %d", status)
		}
		again := r.offered("/prepare", toReceive) // as if no word of it had come
		if status := r.send(again); status != http.StatusOK {
			t.Errorf("a push with the token of a repeat: %d", status)
		}
		if n := c.told(""); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
	t.Run("OfAPullTellsNoAddress", func(t *testing.T) {
		t.Parallel()
		r, c := preparing(t, nil)
		if status, state, _ := r.ask(http.MethodPost, "/prepare", pullMessage); status != http.StatusAccepted || state != "PREPARING" {
			t.Fatalf("prepare: %d %s", status, state)
		}
		r.await("it is told", func() bool { return c.told("/f/dataflow/prepared", `"state":"PREPARED"`) == 1 })
		if c.told("dataAddress") > 0 {
			t.Errorf("it was told %q", c.said)
		}
	})
	t.Run("ThatADeadNodeLeftIsDoneByAnother", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r, c := preparing(t, func(p *transfer.Config) { s = p.Store.(flowStore) })
		leftPreparing(t, s)
		r.becomes("f", "PREPARED")
		r.await("it is told", func() bool { return c.told("/f/dataflow/prepared") == 1 })
		if status := r.send(c.token(t)); status != http.StatusOK {
			t.Errorf("a push with the token that was told: %d", status)
		}
	})
	t.Run("ThatADeadNodeLeftIsFoundByARepeat", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r, c := preparing(t, func(p *transfer.Config) { s, p.StrayEvery = p.Store.(flowStore), time.Hour })
		leftPreparing(t, s)
		var repeats sync.WaitGroup
		for range 8 {
			repeats.Go(func() {
				status, state, _ := r.ask(http.MethodPost, "/prepare", toReceive)
				if got := fmt.Sprintf("%d %s", status, state); got != "202 PREPARING" && got != "200 PREPARED" {
					t.Errorf("repeat: %s", got)
				}
			})
		}
		repeats.Wait()
		r.becomes("f", "PREPARED")
		r.await("all is told", func() bool {
			n, err := s.WaitingCallbacks(t.Context(), 10)
			return err == nil && n == 0
		})
		if n := c.told(""); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
	t.Run("WhileItLastsAllowsOnlyItsEnd", func(t *testing.T) {
		t.Parallel()
		var shut atomic.Bool
		shut.Store(true)
		r, c := preparing(t, func(p *transfer.Config) { p.Store = unprepared{p.Store, &shut} })
		for range 2 {
			if status, state, _ := r.ask(http.MethodPost, "/prepare", toReceive); status != http.StatusAccepted || state != "PREPARING" {
				t.Fatalf("prepare: %d %s", status, state)
			}
		}
		for path, body := range map[string]string{
			"/f/started": `{"messageId":"m"}`, "/f/suspend": `{"messageId":"m"}`, "/f/resume": `{"messageId":"m"}`, "/f/completed": "",
			"/start": strings.TrimSuffix(toReceive, "}") + `,"dataAddress":{"endpointType":"file","endpoint":"file://f"}}`,
		} {
			if status, code, _ := r.ask(http.MethodPost, path, body); status != http.StatusConflict || code != "wrong_state" {
				t.Errorf("%s: %d %s", path, status, code)
			}
		}
		if status, code, _ := r.ask(http.MethodPost, "/f/terminate", `{"messageId":"m","reason":"enough"}`); status != http.StatusOK {
			t.Fatalf("terminate: %d %s", status, code)
		}
		shut.Store(false)
		if status, state, reason := r.ask(http.MethodPost, "/prepare", toReceive); status != http.StatusOK || state != "TERMINATED" || reason != "enough" {
			t.Errorf("prepare of what has ended: %d %s %s", status, state, reason)
		}
		if n := c.told(""); n != 0 {
			t.Errorf("it was told %q", c.said)
		}
	})
	t.Run("ThatCouldNotBeWrittenIsWrittenLater", func(t *testing.T) {
		t.Parallel()
		var shut atomic.Bool
		shut.Store(true)
		r, c := preparing(t, func(p *transfer.Config) { p.Store = unprepared{p.Store, &shut} })
		r.ask(http.MethodPost, "/prepare", toReceive)
		shut.Store(false)
		r.becomes("f", "PREPARED")
		r.await("it is told", func() bool { return c.told("/f/dataflow/prepared") == 1 })
	})
}
