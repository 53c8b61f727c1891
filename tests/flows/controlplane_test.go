//go:build unix

package flows_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// controlToken is what callbacks must come with.
const controlToken = "a-token-of-the-data-plane"

// controlPlane takes callbacks and is strict about them: what its schemas do
// not allow fails the test.
type controlPlane struct {
	url string
	t   testing.TB

	mu      sync.Mutex
	answers map[string][]int // that are given first, by event; 0: no answer at all
	away    bool             // all that come after them are answered 503
	told    []word
	tries   map[string]int // by event, accepted or not
	ids     map[string]string
	schemas map[string]*jsonschema.Schema
	planes  int // registrations that were accepted
}

// word is one callback that was accepted.
type word struct{ flow, event, body string }

func newControlPlane(t testing.TB) *controlPlane {
	t.Helper()
	c := &controlPlane{t: t, answers: map[string][]int{}, tries: map[string]int{}, ids: map[string]string{}, schemas: map[string]*jsonschema.Schema{}}
	for _, name := range []string{"status", "registration"} {
		c.schemas[name] = schema(t, name)
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// schema reads one of the schemas.
func schema(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, document); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkJSON demands that a text is JSON that a schema allows.
func checkJSON(t testing.TB, s *jsonschema.Schema, what string, text []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = s.Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", what, text, err)
	}
}

// answer makes the next callbacks of an event answered so, one after the other.
func (c *controlPlane) answer(event string, statuses ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[event] = append(c.answers[event], statuses...)
}

// isAway says whether the control plane takes nothing.
func (c *controlPlane) isAway(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// heard are the events of a flow that were accepted, in order.
func (c *controlPlane) heard(flow string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var events []string
	for _, w := range c.told {
		if w.flow == flow {
			events = append(events, w.event)
		}
	}
	return strings.Join(events, " ")
}

// hears waits until exactly these events of a flow were accepted.
func (c *controlPlane) hears(flow, events string) {
	c.t.Helper()
	within(c.t, "the control plane hears "+events+" of "+flow, func() bool { return c.heard(flow) == events })
}

// said is all that was said in the accepted callbacks of a flow.
func (c *controlPlane) said(flow string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bodies []string
	for _, w := range c.told {
		if w.flow == flow {
			bodies = append(bodies, w.body)
		}
	}
	return strings.Join(bodies, "\n")
}

// tried is how often an event was sent.
func (c *controlPlane) tried(event string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tries[event]
}

func (c *controlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.URL.Path == "/v4/dataplanes" && r.Method == http.MethodPut {
		checkJSON(c.t, c.schemas["registration"], "registration", body)
		c.mu.Lock()
		c.planes++
		c.mu.Unlock()
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if r.Method != http.MethodPost || len(parts) != 4 || parts[0] != "transfers" || parts[2] != "dataflow" {
		c.t.Errorf("control plane: %s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	flow, err := url.PathUnescape(parts[1])
	if err != nil {
		c.t.Errorf("control plane: %v", err)
	}
	event := parts[3]
	status := c.next(event)
	switch {
	case status == 0:
		<-r.Context().Done() // never
		return
	case status != http.StatusOK:
		w.WriteHeader(status)
		return
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+controlToken {
		c.t.Errorf("callback comes with %q", got)
	}
	checkJSON(c.t, c.schemas["status"], "callback "+event, body)
	c.checkWord(flow, event, body)
	c.note(flow, event, string(body))
}

// meant are the states that events tell.
var meant = map[string]string{"prepared": "PREPARED", "started": "STARTED", "completed": "COMPLETED", "errored": "TERMINATED"}

// checkWord demands that a callback says what its path says.
func (c *controlPlane) checkWord(flow, event string, body []byte) {
	var said struct {
		DataFlowID, State, Error string
		DataAddress              json.RawMessage
	}
	if err := json.Unmarshal(body, &said); err != nil {
		c.t.Errorf("callback %s: %v", event, err)
	}
	if said.DataAddress != nil && event != "prepared" ||
		said.DataFlowID != flow || said.State != meant[event] || (said.Error != "") != (event == "errored") {
		c.t.Errorf("callback %s of %s says %s", event, flow, body)
	}
}

// registered is how often a data plane was registered.
func (c *controlPlane) registered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.planes
}

// next is the status to answer an event with.
func (c *controlPlane) next(event string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries[event]++
	if planned := c.answers[event]; len(planned) > 0 {
		c.answers[event] = planned[1:]
		return planned[0]
	}
	if c.away {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// note keeps what was told: a message that comes again counts once.
func (c *controlPlane) note(flow, event, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[body] != "" {
		return
	}
	c.ids[body] = event
	c.told = append(c.told, word{flow, event, body})
}
