//go:build unix

package openapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Tokens of operators, and their file.
const (
	adasToken = "a-token-that-may-operate"
	evesToken = "a-token-that-may-read"
)

func operatorLines() string {
	return fmt.Sprintf("operate ada sha256:%x\nread eve sha256:%x\n", sha256.Sum256([]byte(adasToken)), sha256.Sum256([]byte(evesToken)))
}

// operate asks the operator API and holds the answer, and an order that is
// obeyed, against the document.
func (n *node) operate(t *testing.T, token, method, template, id, query, body string) (a answer, code string) {
	t.Helper()
	path := strings.ReplaceAll(template, "{id}", id) + query
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, n.Internal+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a = read(t, resp)
	operation := "/paths/" + escape(template) + "/" + strings.ToLower(method)
	if _, _, described := n.internal.at(operation); !described { // of a path that is not there
		operation = "/paths/~1v1~1records/get"
	}
	n.internal.checkResponse(t, fmt.Sprintf("%s/responses/%d", operation, a.status), a)
	if a.status != http.StatusOK {
		var p struct{ Code string }
		if err := json.Unmarshal(a.body, &p); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
		return a, p.Code
	}
	if body != "" {
		if err := n.internal.schema(t, operation+"/requestBody/content/application~1json/schema").Validate(decode(t, []byte(body))); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
	}
	return a, ""
}

// unknownRecord is one of which nobody can tell what came of it, and its epoch.
func (n *node) unknownRecord(t *testing.T, key string) (id string, epoch int64) {
	t.Helper()
	n.pay(t, "broken", "{}", key)
	var p struct {
		Ref string `json:"operation_ref"`
	}
	if err := json.Unmarshal(n.pay(t, "broken", "{}", key).body, &p); err != nil {
		t.Fatal(err)
	}
	a, _ := n.operate(t, evesToken, http.MethodGet, "/v1/records/{id}", p.Ref, "", "")
	var report struct{ Record struct{ Epoch int64 } }
	if err := json.Unmarshal(a.body, &report); err != nil {
		t.Fatal(err)
	}
	return p.Ref, report.Record.Epoch
}

// operators asks for everything that operators can ask for.
func operators(t *testing.T, n *node, _ map[string]bool) {
	h, err := n.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unknown, epoch := n.unknownRecord(t, "o1")
	again, epochAgain := n.unknownRecord(t, "o2")
	const (
		record, executor = "/v1/records/{id}", "/v1/executors/{id}"
		because          = `{"reason": "INC-42"}`
		get, post        = http.MethodGet, http.MethodPost
	)
	order := fmt.Sprintf(`{"epoch": %d, "reason": "INC-42"}`, epoch)
	resolution := fmt.Sprintf(`{"epoch": %d, "reason": "INC-42", "retention": "1h", "response": {"status": 201, "headers": {"A": ["b"]}, "body_base64": "YQ=="}}`, epoch)
	seen := map[string]bool{"internal_error": true, "store_unavailable": true, "not_serving": true} // of a defect; of outages
	for _, q := range []struct {
		token, method, template, id, query, body, code string
	}{
		{evesToken, get, "/v1/records", "", "?state=unknown&limit=1", "", ""},
		{evesToken, get, "/v1/records", "", "?operation=plain&older_than=1ns", "", ""},
		{evesToken, get, record, unknown, "", "", ""},
		{evesToken, get, "/v1/executors", "", "?all=true", "", ""},
		{evesToken, get, executor, h.Executor, "", "", ""},
		{evesToken, get, "/v1/events", "", "?limit=5", "", ""},

		{"", get, "/v1/records", "", "", "", "unauthorized"},
		{"guessed", post, record + "/release", unknown, "", order, "unauthorized"},
		{evesToken, post, record + "/release", unknown, "", order, "forbidden"},
		{evesToken, post, "/v1/purge", "", "", because, "forbidden"},
		{evesToken, get, "/v1/records", "", "?state=done", "", "request_invalid"},
		{adasToken, post, record + "/resolve", unknown, "", order, "request_invalid"},
		{adasToken, post, record + "/release", unknown, "", order + strings.Repeat(" ", 4<<20), "request_too_large"},
		{evesToken, get, record, noRecord, "", "", "not_found"},
		{evesToken, get, executor, nobody, "", "", "not_found"},
		{evesToken, get, "/v1/nothing", "", "", "", "not_found"},
		{evesToken, http.MethodDelete, "/v1/records", "", "", "", "method_not_allowed"},
		{adasToken, post, record + "/reconcile", unknown, "", order, "not_reconcilable"},
		{adasToken, post, executor + "/fence", h.Executor, "", because, "lease_held"},

		{adasToken, post, record + "/resolve", unknown, "", resolution, ""},
		{adasToken, post, record + "/resolve", unknown, "", resolution, ""}, // a repeat after a lost reply
		{adasToken, post, record + "/release", unknown, "", order, "state_conflict"},
		{adasToken, post, record + "/release", again, "", fmt.Sprintf(`{"epoch": %d, "reason": "INC-42"}`, epochAgain), ""},
		{adasToken, post, "/v1/principals/erase", "", "", `{"realm": "", "principal": "none", "reason": "DSR-7"}`, ""},
		{adasToken, post, "/v1/purge", "", "", because, ""},
		{evesToken, get, record, unknown, "", "", ""},
		{evesToken, get, "/v1/events", "", "?record=" + unknown, "", ""},
	} {
		a, code := n.operate(t, q.token, q.method, q.template, q.id, q.query, q.body)
		if code != q.code {
			t.Errorf("%s %s%s: %d %s, want %q", q.method, q.template, q.query, a.status, a.body, q.code)
		}
		seen[code] = true
	}
	for _, code := range n.internal.enum(t, "/components/schemas/OperatorRefusal/properties/code") {
		if !seen[code] {
			t.Errorf("%s was not brought about", code)
		}
	}
	n.reconciled(t)
}

// reconciled has a record reconciled: the route gets a reconciler that cannot
// tell at first.
func (n *node) reconciled(t *testing.T) {
	t.Helper()
	n.service.tell(`{"finding": "undecidable"}`)
	n.pay(t, "reconciled", "{}", "o3")
	var p struct {
		Ref string `json:"operation_ref"`
	}
	if err := json.Unmarshal(n.pay(t, "reconciled", "{}", "o3").body, &p); err != nil {
		t.Fatal(err)
	}
	a, _ := n.operate(t, adasToken, http.MethodGet, "/v1/records/{id}", p.Ref, "", "")
	var report struct{ Record struct{ Epoch int64 } }
	if err := json.Unmarshal(a.body, &report); err != nil {
		t.Fatal(err)
	}
	n.service.tell(applied)
	a, code := n.operate(t, adasToken, http.MethodPost, "/v1/records/{id}/reconcile", p.Ref, "", fmt.Sprintf(`{"epoch": %d, "reason": "INC-42"}`, report.Record.Epoch))
	if code != "" || !strings.Contains(string(a.body), `"finding":"applied"`) {
		t.Errorf("reconcile: %d %s", a.status, a.body)
	}
}
