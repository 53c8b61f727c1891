//go:build unix

package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/tests/fleet"
)

// notBroughtAbout are the codes that a gateway cannot be made to answer from
// outside, and why.
var notBroughtAbout = map[string]string{
	"execution_failed":  "of handlers in Go that panic, behind the middleware",
	"internal_error":    "of a defect",
	"result_unreadable": "of a store whose keys are not here",
}

// TestNode holds what a running node answers against the documents, and ends
// it: the last answers are those of a node that leaves.
func TestNode(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	codes := map[string]bool{}
	for _, step := range []struct {
		name string
		run  func(t *testing.T, n *node, codes map[string]bool)
	}{
		{"AnswersAboutItsHealth", health},
		{"AnswersAboutRecords", questions},
		{"RefusesWhatIsNoQuestion", refusals},
		{"MarksAnswers", marks},
		{"AcceptsTheKeysThatAreDescribed", keys},
		{"ExplainsProblems", problems},
		{"AsksReconcilersWhatIsDescribed", reconcilers},
		{"DoesWhatOperatorsAsk", operators},
		{"MovesData", flows},
		{"LetsOperatorsEndFlows", operatedFlows},
		{"SaysThatItLeaves", leaving},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, n, codes) })
	}
	for reason := range maps.Keys(notBroughtAbout) {
		codes[reason] = true
	}
	all := n.keyed.enum(t, "/components/schemas/Problem/properties/code")
	if got := slices.Sorted(maps.Keys(codes)); !slices.Equal(got, all) {
		t.Errorf("codes seen or excused = %q, described %q", got, all)
	}
}

func health(t *testing.T, n *node, _ map[string]bool) {
	for _, path := range []string{"/probe", "/readyz", "/livez", "/metrics"} {
		a := n.get(t, path)
		n.internal.checkResponse(t, "/paths/"+escape(path)+"/get/responses/200", a)
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

const (
	noRecord = "0000000000000000000000000000000000000000000000000000000000000000"
	nobody   = "00000000-0000-4000-8000-000000000000"
	nonce    = "0123456789abcdef0123456789abcdef"
)

// question asks the internal listener.
func (n *node) question(t *testing.T, path, body string, pairs ...string) answer {
	t.Helper()
	if len(pairs) == 0 {
		pairs = []string{"Authorization", "Bearer " + fleetToken}
	}
	a := n.ask(t, n.Internal, path, body, pairs...)
	operation := "/paths/~1probe~1records~1{id}/post"
	if path == "/probe/witness" {
		operation = "/paths/~1probe~1witness/post"
	}
	n.internal.checkResponse(t, fmt.Sprintf("%s/responses/%d", operation, a.status), a)
	return a
}

// said is what a signed message says.
func said(t *testing.T, a answer) string {
	t.Helper()
	var m struct{ Payload []byte }
	var p struct{ Answer string }
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if err := json.Unmarshal(m.Payload, &p); err != nil {
		t.Fatalf("%v: %s", err, m.Payload)
	}
	return p.Answer
}

func questions(t *testing.T, n *node, _ map[string]bool) {
	h, err := n.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan answer, 1)
	go func() { running <- n.pay(t, "held", "{}", "asked-about") }()
	<-n.service.arrived
	ref := n.pay(t, "held", "{}", "asked-about", "Prefer", "wait=0")
	var p struct {
		Ref string `json:"operation_ref"`
	}
	if err := json.Unmarshal(ref.body, &p); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct{ path, executor, more, want string }{
		{"/probe/records/" + noRecord, h.Executor, "", "not_running"},
		{"/probe/records/" + noRecord, nobody, "", "not_me"},
		{"/probe/records/" + p.Ref, h.Executor, "", "running"},
		{"/probe/records/" + p.Ref, h.Executor, `, "wait_ms": 50`, "running"},
		{"/probe/witness", h.Executor, "", "not_running"},
		{"/probe/witness", nobody, "", "unknown"},
	} {
		body := fmt.Sprintf(`{"executor": %q, "epoch": 7, "nonce": %q%s}`, q.executor, nonce, q.more)
		schema := "/components/schemas/RecordQuestion"
		if q.path == "/probe/witness" {
			schema = "/components/schemas/WitnessQuestion"
		}
		if err := n.internal.schema(t, schema).Validate(decode(t, []byte(body))); err != nil {
			t.Error(err)
		}
		if a := n.question(t, q.path, body); a.status != http.StatusOK || said(t, a) != q.want {
			t.Errorf("%s of %s: %d %s, want %s", q.path, q.executor, a.status, a.body, q.want)
		}
	}
	n.service.release()
	<-running
}

func refusals(t *testing.T, n *node, _ map[string]bool) {
	good := fmt.Sprintf(`{"executor": %q, "nonce": %q}`, nobody, nonce)
	for _, q := range []struct {
		name, path, body string
		pairs            []string
		want             int
	}{
		{"another id", "/probe/records/xyz", good, nil, 400},
		{"no json", "/probe/records/" + noRecord, "{", nil, 400},
		{"no nonce", "/probe/witness", fmt.Sprintf(`{"executor": %q}`, nobody), nil, 400},
		{"waits too long", "/probe/records/" + noRecord, strings.Replace(good, "}", `, "wait_ms": 60001}`, 1), nil, 400},
		{"too large", "/probe/witness", good + strings.Repeat(" ", 5<<10), nil, 413},
		{"no token", "/probe/witness", good, []string{"X-No", "token"}, 401},
		{"another token", "/probe/records/" + noRecord, good, []string{"Authorization", "Bearer guessed"}, 401},
	} {
		if a := n.question(t, q.path, q.body, q.pairs...); a.status != q.want {
			t.Errorf("%s: %d %s, want %d", q.name, a.status, a.body, q.want)
		}
	}
}

func marks(t *testing.T, n *node, _ map[string]bool) {
	for _, want := range []string{"executed", "replayed"} {
		a := n.pay(t, "plain", "{}", "marked", "Origin", "https://shop.example", "Prefer", "wait=3")
		if got := a.header.Get("Idempotency-Status"); a.status != http.StatusCreated || got != want {
			t.Errorf("%d, Idempotency-Status %q, want %q", a.status, got, want)
		}
		if a.header.Get("Preference-Applied") != "wait=3" || a.header.Get("Access-Control-Expose-Headers") == "" {
			t.Errorf("marks: %v", a.header)
		}
	}
}

// keys shows that the node takes exactly the keys that the documents describe.
func keys(t *testing.T, n *node, codes map[string]bool) {
	schema := n.keyed.schema(t, "/components/parameters/IdempotencyKey/schema")
	long := strings.Repeat("k", 255)
	for _, key := range []string{
		"k", "8e03978e-40d5-43dd-bc93-6894a57f9324", `"k"`, `"a,b;c"`, `"a\"b\\c"`, "a:b/c+d=e~!#", long, `"` + long + `"`,
		`""`, "a,b", "a;b", `a"b`, `"a`, `"a"b`, `"a\b"`, "a b", "ä", long + "k", `"` + long + `k"`,
	} {
		described := schema.Validate(key) == nil
		a := n.pay(t, "plain", "{}", key)
		if taken := a.status < 400; taken != described {
			t.Errorf("key %q: status %d, described %v", key, a.status, described)
		}
		noteCode(t, a, codes)
	}
}

// noteCode notes the code of a problem.
func noteCode(t *testing.T, a answer, codes map[string]bool) string {
	t.Helper()
	if a.status < 400 {
		return ""
	}
	var p struct{ Code string }
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	codes[p.Code] = true
	return p.Code
}

func problems(t *testing.T, n *node, codes map[string]bool) {
	for _, q := range []struct {
		route, body, key string
		pairs            []string
		again            bool // the second answer counts
		want             string
	}{
		{route: "plain", want: "idempotency_key_missing"},
		{route: "plain", body: `{"other": 1}`, key: "marked", want: "idempotency_key_reused"},
		{route: "broken", key: "p1", want: "outcome_unknown"},
		{route: "broken", key: "p1", again: true, want: "outcome_unknown"},
		{route: "released", key: "p2", want: "upstream_failed"},
		{route: "stored", key: "p3", want: "upstream_failed"},
		{route: "stored", key: "p3", again: true, want: "upstream_failed"},
		{route: "secret", key: "p4", again: true, want: "result_not_replayable"},
		{route: "small", body: strings.Repeat(" ", 17), key: "p5", want: "request_too_large"},
		{route: "plain/" + strings.Repeat("x", 70_000), key: "p6", want: "not_found"},
		{route: "tenant", key: "p7", want: "realm_missing"},
		{route: "named", key: "p8", want: "principal_missing"},
		{route: "token", key: "p9", pairs: []string{"Authorization", "Bearer forged"}, want: "token_invalid"},
		{route: "asked", key: "p10", want: "authorization_unavailable"},
		{route: "nobody", key: "p11", want: "upstream_unavailable"},
	} {
		a := n.pay(t, q.route, q.body, q.key, q.pairs...)
		if q.again {
			a = n.pay(t, q.route, q.body, q.key, q.pairs...)
		}
		if got := noteCode(t, a, codes); got != q.want {
			t.Errorf("%s: %d %s, want %s", q.route, a.status, a.body, q.want)
		}
	}
	long := n.ask(t, n.public, "/plain/"+strings.Repeat("x", 70_000), "{}", "Idempotency-Key", "p12")
	n.checkKeyed(t, long)
	if got := noteCode(t, long, codes); got != "request_invalid" {
		t.Errorf("a long path: %d %s", long.status, long.body)
	}
	cut := n.cut(t)
	n.checkKeyed(t, cut)
	if got := noteCode(t, cut, codes); got != "request_incomplete" {
		t.Errorf("a body that ends early: %d %s", cut.status, cut.body)
	}
}

// cut sends a request whose body ends early.
func (n *node) cut(t *testing.T) answer {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.Spec.Public)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /plain/1 HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: cut\r\nContent-Length: 10\r\n\r\n{")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return readRaw(t, conn)
}

func reconcilers(t *testing.T, n *node, _ map[string]bool) {
	a := n.pay(t, "reconciled", "{}", "asked-back")
	if a.status != http.StatusCreated || a.header.Get("Idempotency-Status") != "reconciled" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	n.service.mu.Lock()
	defer n.service.mu.Unlock()
	if len(n.service.questions) == 0 {
		t.Fatal("the service was not asked")
	}
	for _, q := range n.service.questions {
		if err := n.keyed.schema(t, "/components/schemas/Question").Validate(decode(t, q)); err != nil {
			t.Errorf("%v\n%s", err, q)
		}
	}
	finding := n.keyed.schema(t, "/components/schemas/Finding")
	if err := finding.Validate(decode(t, []byte(applied))); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"finding": "applied"}`, `{"finding": "pending", "response": {"status": 201}}`, `{"finding": "done"}`} {
		if finding.Validate(decode(t, []byte(bad))) == nil {
			t.Errorf("%s is described as an answer", bad)
		}
	}
}

// leaving ends the node while it has something to do.
func leaving(t *testing.T, n *node, codes map[string]bool) {
	held := make(chan struct{})
	n.service.mu.Lock()
	n.service.held = held
	n.service.mu.Unlock()

	slow := n.pay(t, "slow", "{}", "p13")
	if got := noteCode(t, slow, codes); got != "upstream_timeout" {
		t.Errorf("a slow service: %d %s", slow.status, slow.body)
	}
	last := make(chan answer, 1)
	go func() { last <- n.pay(t, "held", "{}", "last") }()
	<-n.service.arrived
	reject := n.pay(t, "held", "{}", "last", "Prefer", "wait=0")
	if got := noteCode(t, reject, codes); got != "operation_in_progress" {
		t.Errorf("a duplicate that does not wait: %d %s", reject.status, reject.body)
	}

	n.Term(t)
	n.awaitStatus(t, http.StatusServiceUnavailable)
	n.internal.checkResponse(t, "/paths/~1probe/get/responses/503", n.get(t, "/probe"))
	n.internal.checkResponse(t, "/paths/~1livez/get/responses/200", n.get(t, "/livez"))
	fleet.Await(t, "the node claims nothing more", func() bool {
		return noteCode(t, n.pay(t, "plain", "{}", "new-"+time.Now().String()[11:29]), codes) == "store_unavailable"
	})
	n.service.release()
	if a := <-last; a.status != http.StatusCreated {
		t.Errorf("the last answer: %d %s", a.status, a.body)
	}
	if err := n.AwaitEnd(t); err != nil {
		t.Errorf("the node: %v", err)
	}
}

// awaitStatus waits until the health check has this status.
func (n *node) awaitStatus(t *testing.T, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fleet.Await(t, fmt.Sprintf("health is %d", status), func() bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Internal+"/probe", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		return read(t, resp).status == status
	})
}
