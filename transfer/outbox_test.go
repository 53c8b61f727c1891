package transfer_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// control is a control plane that notes what it is told.
type control struct {
	url string

	mu     sync.Mutex
	status []int    // of the next answers; then 200
	said   []string // path, token and body
}

func newControl(t *testing.T) *control {
	t.Helper()
	c := &control{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing does not fit
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.EscapedPath(), r.Header.Get("Authorization"), body))
		if len(c.status) > 0 {
			w.WriteHeader(c.status[0])
			c.status = c.status[1:]
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *control) told(parts ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.said {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s, part) }) {
			n++
		}
	}
	return n
}

func good(transfer.Task) (move.Source, error) { return content("good"), nil }

func TestCallbacks(t *testing.T) {
	t.Parallel()
	t.Run("AreRepeatedWithTheSameMessageUntilTheyAreTaken", func(t *testing.T) {
		t.Parallel()
		c := newControl(t)
		c.status = []int{http.StatusNotFound, http.StatusServiceUnavailable, http.StatusTemporaryRedirect}
		r := newRig(t, good, func(p *transfer.Config) { p.ControlPlane, p.CallbackToken = c.url, "secret" })
		r.start("a/b", "d")
		r.await("it is delivered", func() bool { return c.told("POST /transfers/a%2Fb/dataflow/completed Bearer secret") == 4 })
		ids := map[string]bool{}
		for _, s := range c.said {
			var m struct{ MessageID string }
			if err := json.Unmarshal([]byte(s[strings.Index(s, "{"):]), &m); err != nil {
				t.Fatal(err)
			}
			ids[m.MessageID] = true
		}
		if len(ids) != 1 {
			t.Errorf("%d messages, want one four times", len(ids))
		}
	})
	t.Run("ThatAreRefusedForGoodAreGivenUp", func(t *testing.T) {
		t.Parallel()
		c := newControl(t)
		c.status = []int{http.StatusBadRequest}
		r := newRig(t, good, func(p *transfer.Config) { p.ControlPlane, p.Async = c.url, true })
		if status, state := r.start("f", "d"); status != http.StatusAccepted || state != "STARTING" {
			t.Fatalf("start: %d %s", status, state)
		}
		r.await("the next one comes", func() bool { return c.told("/dataflow/completed") == 1 })
		if n := c.told("/dataflow/started"); n != 1 {
			t.Errorf("the refused one was sent %d times", n)
		}
	})
	t.Run("ThatFailDoNotTellTheirAddress", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r := newRig(t, good, func(p *transfer.Config) { s = p.Store.(flowStore) })
		r.ask(http.MethodPost, "/start", `{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x","processId":"f","agreementId":"a",
			"datasetId":"d","profile":"x-push","callbackAddress":"http://127.0.0.1:1/secret","dataAddress":{"endpointType":"file","endpoint":"file://f"}}`)
		var reason string
		r.await("it fails", func() bool {
			h, err := s.LoadFlow(t.Context(), "f")
			if err == nil && h.Callback != nil {
				reason = h.Callback.Reason
			}
			return reason != ""
		})
		if strings.Contains(reason, "secret") {
			t.Errorf("reason = %q", reason)
		}
	})
	t.Run("TakeTheTokenNowhereElse", func(t *testing.T) {
		t.Parallel()
		home, elsewhere := newControl(t), newControl(t)
		r := newRig(t, good, func(p *transfer.Config) { p.ControlPlane, p.CallbackToken = home.url, "secret" })
		r.ask(http.MethodPost, "/start", fmt.Sprintf(`{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x","processId":"f",
			"agreementId":"a","datasetId":"d","profile":"x-push","callbackAddress":%q,"dataAddress":{"endpointType":"file","endpoint":"file://f"}}`, elsewhere.url))
		r.await("it is delivered", func() bool { return elsewhere.told("/dataflow/completed") == 1 })
		if elsewhere.told("secret") > 0 {
			t.Error("the token went along")
		}
		if home.told("") > 0 {
			t.Error("the configured control plane was told, too")
		}
	})
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	t.Run("IsRepeatedUntilItIsTaken", func(t *testing.T) {
		t.Parallel()
		c := newControl(t)
		c.status = []int{http.StatusServiceUnavailable}
		newRig(t, good, func(p *transfer.Config) {
			p.PublicURL = "https://data.example/dataflows/"
			p.Registration = transfer.Registration{URL: c.url + "/management", Token: "secret", ID: "dp", Profiles: []string{"http-push"}}
		}).await("it is registered", func() bool {
			return c.told("PUT /management/v4/dataplanes Bearer secret", `"dataplaneId":"dp"`, `"endpoint":"https://data.example/dataflows"`) == 2
		})
	})
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	t.Run("AreRefusedWhereThatIsWantedButNotTheVeryMessage", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, good, func(c *transfer.Config) { c.RejectDuplicates = true })
		r.start("f", "d")
		r.becomes("f", "COMPLETED")
		if status, state := r.start("f", "d"); status != http.StatusOK || state != "COMPLETED" {
			t.Errorf("the very message: %d %s", status, state)
		}
		status, code, _ := r.ask(http.MethodPost, "/start", `{"messageId":"other","participantId":"p","counterPartyId":"c","dataspaceContext":"x",
			"processId":"f","agreementId":"a","datasetId":"d","profile":"x-push","dataAddress":{"endpointType":"file","endpoint":"file://f"}}`)
		if status != http.StatusConflict || code != "flow_exists" {
			t.Errorf("another message: %d %s", status, code)
		}
	})
}

// TestTimes measures what a control plane waits for. It fails only where a
