//go:build unix

package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flow asks for something about data flows, and holds the request, if it is
// obeyed, and the answer against the document.
func (n *node) flow(t *testing.T, token, method, template, id, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, n.public+strings.ReplaceAll(template, "{id}", id), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a := read(t, resp)
	operation := "/paths/" + escape(template) + "/" + strings.ToLower(method)
	n.moved.checkResponse(t, fmt.Sprintf("%s/responses/%d", operation, a.status), a)
	schema := operation + "/requestBody/content/application~1json/schema"
	if _, _, takes := n.moved.at(schema); takes && a.status < 300 && body != "" {
		if err := n.moved.schema(t, schema).Validate(decode(t, []byte(body))); err != nil {
			t.Errorf("%s %s: %v", method, template, err)
		}
	}
	return a
}

// flowMessage asks for a flow.
func flowMessage(id, direction, more string) string {
	return fmt.Sprintf(`{"messageId": "m", "participantId": "p", "counterPartyId": "c", "dataspaceContext": "x", "processId": %q,
		"agreementId": "a", "datasetId": "asset", "profile": "https://w3id.org/dspace-sig/profile/http-%s"%s}`, id, direction, more)
}

const (
	prepareFlow, startFlow, flowData = "/dataflows/prepare", "/dataflows/start", "/dataflows/{id}/data"
	flowWord                         = `{"messageId": "m", "reason": "because"}`
	flowTo                           = `, "dataAddress": {"@type": "DataAddress", "endpointType": "file-push", "endpoint": "file://files/%s"}`
)

// flows asks for everything that a control plane can ask for.
func flows(t *testing.T, n *node, _ map[string]bool) {
	const get, post, put, command = http.MethodGet, http.MethodPost, http.MethodPut, "/dataflows/{id}/"
	pushed, pulled := flowMessage("pushed", "push", fmt.Sprintf(flowTo, "out")), flowMessage("pulled", "pull", "")
	for _, q := range []struct {
		token, method, template, id, body string
		status                            int
		code                              string
	}{
		{controlToken, post, startFlow, "", pushed, 200, ""},
		{controlToken, post, startFlow, "", pushed, 200, ""},
		{controlToken, post, startFlow, "", flowMessage("alone", "pull", `, "trackable": false`), 200, ""},
		{controlToken, post, startFlow, "", flowMessage("pushed", "pull", ""), 409, "flow_exists"},
		{controlToken, post, startFlow, "", "{}", 400, "invalid_message"},
		{"guessed", post, startFlow, "", pulled, 401, "unauthorized"},
		{controlToken, post, startFlow, "", pulled, 200, ""},
		{controlToken, post, command + "suspend", "pulled", flowWord, 200, ""},
		{controlToken, post, command + "completed", "pulled", "", 409, "wrong_state"},
		{controlToken, post, command + "resume", "pulled", flowWord, 200, ""},
		{controlToken, post, command + "completed", "pulled", "", 200, ""},
		{controlToken, post, command + "completed", "pulled", "{}", 200, ""},
		{controlToken, post, command + "terminate", "pulled", flowWord, 409, "flow_has_ended"},
		{controlToken, post, prepareFlow, "", flowMessage("taken", "push", ""), 200, ""},
		{controlToken, post, command + "started", "taken", flowWord, 200, ""},
		{controlToken, post, command + "started", "taken", flowWord, 200, ""},
		{controlToken, post, command + "started", "pulled", flowWord, 409, "flow_has_ended"},
		{controlToken, get, command + "status", "taken", "", 200, ""},
		{controlToken, get, command + "status", "nothing", "", 404, "flow_not_found"},
		{controlToken, post, command + "terminate", "taken", flowWord, 200, ""},
		{controlToken, get, command + "status", "taken", "", 200, ""},
		{controlToken, post, command + "resume", "nothing", flowWord, 404, "flow_not_found"},
		{"guessed", get, flowData, "taken", "", 401, "unauthorized"},
		{"guessed", put, flowData, "taken", "x", 401, "unauthorized"},
	} {
		a := n.flow(t, q.token, q.method, q.template, q.id, q.body)
		var p struct{ Code string }
		_ = json.Unmarshal(a.body, &p) // not every answer is JSON
		if a.status != q.status || p.Code != q.code {
			t.Errorf("%s %s: %d %s, want %d %s", q.method, q.template, a.status, a.body, q.status, q.code)
		}
	}
	n.flowsData(t)
	n.heeds(t)
}

// flowsData reads a pull's data, and pushes to a flow that was prepared.
func (n *node) flowsData(t *testing.T) {
	t.Helper()
	read := n.issued(t, startFlow, flowMessage("read", "pull", ""))
	if a := n.flow(t, read, http.MethodGet, flowData, "read", ""); a.status != http.StatusOK || string(a.body) != "the dataset's bytes" {
		t.Errorf("data: %d %s", a.status, a.body)
	}
	written := n.issued(t, prepareFlow, flowMessage("written", "push", ""))
	for _, method := range []string{http.MethodPut, http.MethodPost} {
		if a := n.flow(t, written, method, flowData, "written", "what a provider has"); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
}

// issued is the token of the address that an answer brings.
func (n *node) issued(t *testing.T, template, message string) string {
	t.Helper()
	var m struct {
		DataAddress struct {
			EndpointProperties []struct{ Name, Value string }
		}
	}
	a := n.flow(t, controlToken, http.MethodPost, template, "", message)
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.DataAddress.EndpointProperties {
		if p.Name == "authorization" {
			return p.Value
		}
	}
	t.Fatalf("no token in %s", a.body)
	return ""
}

// heeds asks what only nodes ask each other.
func (n *node) heeds(t *testing.T) {
	t.Helper()
	for _, q := range []struct {
		id, token string
		status    int
	}{{"pulled", fleetToken, 200}, {"read", fleetToken, 200}, {"nothing", fleetToken, 404}, {"pulled", "guessed", 401}} {
		a := n.ask(t, n.Internal, "/flows/"+q.id+"/heed", "", "Authorization", "Bearer "+q.token)
		n.internal.checkResponse(t, fmt.Sprintf("/paths/~1flows~1{id}~1heed/post/responses/%d", a.status), a)
		if a.status != q.status {
			t.Errorf("heed %s: %d %s, want %d", q.id, a.status, a.body, q.status)
		}
	}
}

// operatedFlows asks for everything that operators can ask about flows.
func operatedFlows(t *testing.T, n *node, _ map[string]bool) {
	const list, one, end = "/v1/flows", "/v1/flows/{id}", "/v1/flows/{id}/terminate"
	n.issued(t, startFlow, flowMessage("an id/with?all", "pull", ""))
	odd := url.PathEscape("an id/with?all")
	for _, q := range []struct{ token, method, template, id, query, body, code string }{
		{evesToken, http.MethodGet, list, "", "", "", ""},
		{evesToken, http.MethodGet, list, "", "?state=STARTED&limit=1", "", ""},
		{evesToken, http.MethodGet, list, "", "?after=pulled", "", ""},
		{evesToken, http.MethodGet, list, "", "?state=gone", "", "request_invalid"},
		{"", http.MethodGet, list, "", "", "", "unauthorized"},
		{evesToken, http.MethodGet, one, odd, "", "", ""},
		{evesToken, http.MethodGet, one, "pushed", "", "", ""},
		{evesToken, http.MethodGet, one, "nothing", "", "", "not_found"},
		{evesToken, http.MethodPost, end, odd, "", `{"reason": "INC-42"}`, "forbidden"},
		{adasToken, http.MethodPost, end, odd, "", `{"reason": " "}`, "request_invalid"},
		{adasToken, http.MethodPost, end, odd, "", `{"reason": "INC-42"}`, ""},
		{adasToken, http.MethodPost, end, odd, "", `{"reason": "INC-42"}`, ""}, // a repeat after a lost reply
		{adasToken, http.MethodPost, end, odd, "", `{"reason": "INC-43"}`, "state_conflict"},
		{adasToken, http.MethodPost, end, "nothing", "", `{"reason": "INC-42"}`, "not_found"},
		{evesToken, http.MethodGet, "/v1/events", "", "?kind=terminated", "", ""},
	} {
		a, code := n.operate(t, q.token, q.method, q.template, q.id, q.query, q.body)
		if code != q.code {
			t.Errorf("%s %s%s: %d %s, want %q", q.method, q.template, q.query, a.status, a.body, q.code)
		}
	}
}

var flowRefusal = regexp.MustCompile(`(?:refused|busy)\(http\.Status(\w+), "(\w+)"`)

// TestFlowCodes holds the codes that the document lists against those that
// package transfer can answer with.
func TestFlowCodes(t *testing.T) {
	t.Parallel()
	status := map[string]int{
		"BadRequest": 400, "Unauthorized": 401, "NotFound": 404, "MethodNotAllowed": 405, "RequestTimeout": 408, "Conflict": 409, "RequestEntityTooLarge": 413,
		"UnprocessableEntity": 422, "TooManyRequests": 429, "InternalServerError": 500, "BadGateway": 502, "ServiceUnavailable": 503, "InsufficientStorage": 507,
	}
	files, err := filepath.Glob("../../transfer/*.go")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flowRefusal.FindAllSubmatch(text, -1) {
			said[string(m[2])] = status[string(m[1])]
		}
	}
	if diff := cmp.Diff(said, load(t, "dataflows.yaml").statuses(t)); diff != "" {
		t.Errorf("codes by status (-code +document):\n%s", diff)
	}
}
