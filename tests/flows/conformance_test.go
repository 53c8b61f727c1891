//go:build unix

package flows_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// step is one request of a scenario, and what must come of it.
type step struct {
	do      string // POST start, GET status, … without /dataflows/ and the flow's id
	body    any
	status  int
	state   string // of the answer; "": it has none
	code    string // of the problem
	address bool   // the answer has a data address
	replay  bool   // it is marked as a replay
	becomes string // the state that the flow comes to afterwards
	hears   string // what the control plane has been told of it then
	offers  bool   // and with that, an address
}

const (
	edcPush = "HttpData-PUSH"
	edcPull = "HttpData-PULL"
)

var (
	word1  = map[string]any{"messageId": "m"}
	reason = map[string]any{"messageId": "m", "reason": "because"}
)

// edc is the message in the words of EDC 0.16 to 0.18.
func edc(m map[string]any) map[string]any {
	m["transferType"] = m["profile"]
	delete(m, "profile")
	delete(m, "claims")
	return m
}

// TestConformance plays what a data plane must do: synchronously and not, as
// provider and as consumer, pushing and pulled from, in both dialects.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		name := map[bool]string{false: "Sync", true: "Async"}[async]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, 256<<10)
			if async {
				p.extra = "  answer: async\n"
			}
			p.extra += fmt.Sprintf("  registration: {url: %q, id: plane, profiles: [%s, %s]}\n", p.control.url, httpPush, httpPull)
			nodes := p.start("a", "b")
			within(t, "the nodes are registered", func() bool { return p.control.registered() == len(nodes) })
			flow := schema(t, "flow")
			for name, steps := range p.scenarios(async) {
				id := strings.ToLower(name)
				t.Run(name, func(t *testing.T) {
					for i, s := range steps {
						n := nodes[i%2] // each step goes to another node
						n.play(t, id, i, s)
						if s.becomes != "" {
							n.becomes(id, s.becomes)
						}
						if s.hears != "" {
							p.control.hears(id, s.hears)
							if offered := strings.Contains(p.control.said(id), "dataAddress"); offered != s.offers && s.do == "POST prepare" {
								t.Errorf("step %d: the control plane was told %s, want an address: %t", i, p.control.said(id), s.offers)
							}
						}
						if r := n.status(id); r.status == http.StatusOK {
							checkJSON(t, flow, "status", r.body)
						}
					}
				})
			}
		})
	}
}

// play sends a step and compares.
func (n *node) play(t *testing.T, id string, i int, s step) {
	t.Helper()
	method, action, _ := strings.Cut(s.do, " ")
	path := "/dataflows/" + id + "/" + action
	if action == "start" || action == "prepare" {
		path = "/dataflows/" + action
	}
	r := n.ask(method, path, s.body)
	where := fmt.Sprintf("step %d, %s", i, s.do)
	if r.status != s.status || r.code() != s.code {
		t.Fatalf("%s: %s, want %d %s", where, r, s.status, s.code)
	}
	switch {
	case s.state != "" && (!slices.Contains(strings.Fields(s.state), r.state()) || r.json["dataFlowId"] != id):
		t.Errorf("%s: %s, want %s of %s", where, r, s.state, id)
	case s.state == "" && s.status == http.StatusOK && len(r.body) > 0:
		t.Errorf("%s: %s, want no more than the status", where, r)
	}
	_, has := r.json["dataAddress"]
	if has != s.address {
		t.Errorf("%s: %s, want an address: %t", where, r, s.address)
	}
	if replayed := r.header.Get("Idempotent-Replayed") == "true"; replayed != s.replay {
		t.Errorf("%s: replayed %t, want %t", where, replayed, s.replay)
	}
	if r.status == http.StatusAccepted && r.header.Get("Location") != "/dataflows/"+url.PathEscape(id)+"/status" {
		t.Errorf("%s: Location %q", where, r.header.Get("Location"))
	}
	if s.state != "" && action != "status" {
		checkJSON(t, schema(t, "status"), where, r.body)
	}
	kind := "application/json"
	if r.status >= 400 {
		kind = "application/problem+json"
	}
	if got := r.header.Get("Content-Type"); len(r.body) > 0 && got != kind {
		t.Errorf("%s: an answer of type %q, want %s", where, got, kind)
	}
}

// scenarios are what a data plane must pass.
func (p *plane) scenarios(async bool) map[string][]step {
	begun, started, told := http.StatusOK, "STARTED COMPLETED", ""
	ready, prepared, word := http.StatusOK, "PREPARED", ""
	if async {
		begun, started, told = http.StatusAccepted, "STARTING", "started "
		ready, prepared, word = http.StatusAccepted, "PREPARING", "prepared"
	}
	file := func(id string) map[string]any { return push(id, toFile("out", id)) }
	pull := func(id string) map[string]any { return message(id, httpPull, nil) }
	prepare := func(id, profile string) map[string]any { return message(id, profile, nil) }
	named := func(m map[string]any) map[string]any { m["callbackAddress"] = p.control.url; return m }
	return map[string][]step{
		"ProviderPush": {
			{do: "POST start", body: file("providerpush"), status: begun, state: started, becomes: "COMPLETED", hears: told + "completed"},
			{do: "GET status", status: 200, state: "COMPLETED"},
			{do: "POST start", body: file("providerpush"), status: 200, state: "COMPLETED", replay: true},
			{do: "POST suspend", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST resume", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST terminate", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST started", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST completed", status: 200, replay: true},
		},
		"ProviderPushInEDCsWords": {
			{do: "POST start", body: named(edc(message("providerpushinedcswords", edcPush, map[string]any{"dataAddress": toFile("out", "edc")}))), status: begun, state: started, becomes: "COMPLETED", hears: told + "completed"},
		},
		"ProviderPushToHTTP": {
			{do: "POST start", body: push("providerpushtohttp", p.toHTTP("/in/1")), status: begun, state: started, becomes: "COMPLETED", hears: told + "completed"},
		},
		"ProviderPushThatFails": {
			{do: "POST start", body: message("providerpushthatfails", httpPush, map[string]any{"dataAddress": toFile("out", "gone"), "datasetId": "gone"}), status: begun, state: "STARTED STARTING TERMINATED", becomes: "TERMINATED", hears: told + "errored"},
			{do: "POST start", body: message("providerpushthatfails", httpPush, map[string]any{"dataAddress": toFile("out", "gone"), "datasetId": "gone"}), status: 200, state: "TERMINATED", replay: true},
		},
		"ProviderPull": {
			{do: "POST start", body: pull("providerpull"), status: 200, state: "STARTED", address: true},
			{do: "POST start", body: pull("providerpull"), status: 200, state: "STARTED", address: true, replay: true},
			{do: "POST suspend", body: reason, status: 200},
			{do: "GET status", status: 200, state: "SUSPENDED"},
			{do: "POST suspend", body: reason, status: 200},
			{do: "POST completed", status: 409, code: "wrong_state"},
			{do: "POST resume", body: word1, status: 200, state: "STARTED", address: true},
			{do: "POST resume", body: word1, status: 200, state: "STARTED", address: true, replay: true},
			{do: "POST completed", body: map[string]any{}, status: 200, becomes: "COMPLETED"},
			{do: "POST completed", status: 200, replay: true},
			{do: "POST terminate", body: word1, status: 409, code: "flow_has_ended"},
		},
		"ProviderPullInEDCsWords": {
			{do: "POST start", body: edc(message("providerpullinedcswords", edcPull, nil)), status: 200, state: "STARTED", address: true},
			{do: "POST terminate", body: reason, status: 200, becomes: "TERMINATED"},
			{do: "GET status", status: 200, state: "TERMINATED"},
		},
		"ConsumerPull": {
			{do: "POST prepare", body: prepare("consumerpull", httpPull), status: ready, state: prepared, becomes: "PREPARED", hears: word},
			{do: "POST prepare", body: prepare("consumerpull", httpPull), status: 200, state: "PREPARED", replay: true},
			{do: "POST suspend", body: word1, status: 409, code: "wrong_state"},
			{do: "POST resume", body: word1, status: 409, code: "wrong_state"},
			{do: "POST completed", status: 409, code: "wrong_state"},
			{do: "POST started", body: map[string]any{"messageId": "m", "dataAddress": p.toHTTP("/data")}, status: 200, becomes: "STARTED"},
			{do: "POST started", body: word1, status: 200, replay: true},
			{do: "POST suspend", body: word1, status: 200, becomes: "SUSPENDED"},
			{do: "POST resume", body: map[string]any{"messageId": "m", "dataAddress": p.toHTTP("/again")}, status: 200, state: "STARTED"},
			{do: "POST completed", status: 200, becomes: "COMPLETED"},
		},
		"ConsumerPush": {
			{do: "POST prepare", body: prepare("consumerpush", httpPush), status: ready, state: prepared, address: !async, becomes: "PREPARED", hears: word, offers: async},
			{do: "POST prepare", body: prepare("consumerpush", httpPush), status: 200, state: "PREPARED", address: true, replay: true},
			{do: "POST started", body: map[string]any{"messageId": "m", "dataAddress": p.toHTTP("/data")}, status: 400, code: "invalid_message"},
			{do: "POST started", body: word1, status: 200, becomes: "STARTED"},
			{do: "POST suspend", body: word1, status: 200, becomes: "SUSPENDED"},
			{do: "POST resume", body: word1, status: 200, state: "STARTED", address: true},
			{do: "POST completed", status: 200, becomes: "COMPLETED"},
		},
		"PreparedAndTerminated": {
			{do: "POST prepare", body: prepare("preparedandterminated", httpPull), status: ready, state: prepared, becomes: "PREPARED", hears: word},
			{do: "POST terminate", body: reason, status: 200, becomes: "TERMINATED"},
			{do: "POST prepare", body: prepare("preparedandterminated", httpPull), status: 200, state: "TERMINATED", replay: true},
			{do: "POST started", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST suspend", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST resume", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST terminate", body: word1, status: 409, code: "flow_has_ended"},
			{do: "POST completed", status: 409, code: "wrong_state"},
			{do: "POST start", body: pull("preparedandterminated"), status: 409, code: "wrong_state"},
		},
		"PreparedAndStarted": {
			{do: "POST prepare", body: prepare("preparedandstarted", httpPull), status: ready, state: prepared, becomes: "PREPARED", hears: word},
			{do: "POST start", body: pull("preparedandstarted"), status: 200, state: "STARTED", address: true},
			{do: "POST start", body: pull("preparedandstarted"), status: 200, state: "STARTED", address: true, replay: true},
			{do: "POST prepare", body: message("preparedandstarted", httpPull, map[string]any{"agreementId": "x"}), status: 409, code: "flow_exists"},
		},
		"PreparedAndPushed": {
			{do: "POST prepare", body: prepare("preparedandpushed", httpPush), status: ready, state: prepared, address: !async, becomes: "PREPARED", hears: word, offers: async},
			{do: "POST start", body: file("preparedandpushed"), status: begun, state: started, becomes: "COMPLETED", hears: strings.TrimSpace(word + " " + told + "completed")},
			{do: "POST prepare", body: prepare("preparedandpushed", httpPush), status: 200, state: "COMPLETED", replay: true},
			{do: "POST start", body: file("preparedandpushed"), status: 200, state: "COMPLETED", replay: true},
		},
		"Nothing": {
			{do: "GET status", status: 404, code: "flow_not_found"},
			{do: "POST started", body: word1, status: 404, code: "flow_not_found"},
			{do: "POST suspend", body: word1, status: 404, code: "flow_not_found"},
			{do: "POST resume", body: word1, status: 404, code: "flow_not_found"},
			{do: "POST terminate", body: word1, status: 404, code: "flow_not_found"},
			{do: "POST completed", status: 404, code: "flow_not_found"},
			{do: "POST nonsense", body: word1, status: 404, code: "not_found"},
		},
		"Untracked": {
			{do: "POST start", body: message("untracked", httpPush, map[string]any{"trackable": false, "dataAddress": toFile("out", "untracked")}), status: 200, state: "COMPLETED"},
			{do: "GET status", status: 404, code: "flow_not_found"},
			{do: "POST prepare", body: message("untracked", httpPull, map[string]any{"trackable": false}), status: 400, code: "invalid_message"},
		},
	}
}

// TestBadInput is about messages that can never be carried out: each says why,
// and leaves nothing behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 1<<10)
	a := p.start("a")[0]
	with := func(replaced map[string]any) map[string]any {
		m := push("bad", toFile("out", "bad"))
		for name, value := range replaced {
			if m[name] = value; value == nil {
				delete(m, name)
			}
		}
		return m
	}
	address := func(kind, endpoint string) map[string]any {
		return with(map[string]any{"dataAddress": map[string]any{"endpointType": kind, "endpoint": endpoint}})
	}
	if err := os.Symlink("/", filepath.Join(p.dir, "out", "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body any
		says string
	}{
		"NoJSON":             {"{", "not the JSON"},
		"AList":              {"[]", "want a JSON object"},
		"AnotherType":        {`{"processId": 7}`, "not the JSON"},
		"EveryFaultAtOnce":   {map[string]any{}, "agreementId: missing\ndatasetId: missing\nprofile: missing"},
		"NoProcess":          {with(map[string]any{"processId": nil}), "processId: missing"},
		"AControlCharacter":  {with(map[string]any{"processId": "a\nb"}), "processId: want"},
		"UnknownProfile":     {with(map[string]any{"profile": "http"}), "neither in -push nor in -pull"},
		"TwoProfiles":        {with(map[string]any{"transferType": "x-pull"}), "profile and transferType differ"},
		"UnknownDataset":     {with(map[string]any{"datasetId": "nothing"}), `there is no dataset "nothing"`},
		"NoAddress":          {with(map[string]any{"dataAddress": nil}), "dataAddress: missing"},
		"APullWithAnAddress": {message("bad", httpPull, map[string]any{"dataAddress": toFile("out", "bad")}), "a pull has none"},
		"UnknownEndpoint":    {address("carrier-pigeon", "coop"), "none of http, file and s3"},
		"APathUpwards":       {address("file", "file://out/../own/x"), "leads out of its root"},
		"NoSuchRoot":         {address("file", "file://etc/passwd"), "not a root"},
		"AReadOnlyRoot":      {address("file", "file://in/x"), "not a root that may be written to"},
		"AForeignHost":       {address("HttpData-PUSH", "http://169.254.169.254/latest"), "may push to"},
		"ABucketOfNobody":    {with(map[string]any{"dataAddress": map[string]any{"endpointType": "AmazonS3", "endpointProperties": []any{map[string]any{"name": "bucketName", "value": "b"}, map[string]any{"name": "keyName", "value": "k"}}}}), "no store"},
		"AStrangeCallback":   {with(map[string]any{"callbackAddress": "ftp://x"}), "callbackAddress: want an absolute URL"},
		"ABadDigest":         {with(map[string]any{"metadata": map[string]any{"sha256": "12"}}), "metadata.sha256"},
		"ABadLength":         {with(map[string]any{"metadata": map[string]any{"contentLength": -1}}), "metadata.contentLength"},
		"TooLong":            {with(map[string]any{"metadata": map[string]any{"x": strings.Repeat("x", 200<<10)}}), "message over"},
	} {
		t.Run(name, func(t *testing.T) {
			r := a.ask(http.MethodPost, "/dataflows/start", c.body)
			detail, _ := r.json["detail"].(string)
			if r.status != http.StatusBadRequest || !strings.Contains(detail, c.says) {
				t.Errorf("answer = %s, want 400 and %q", r, c.says)
			}
			if r := a.status("bad"); r.status != http.StatusNotFound {
				t.Errorf("it left something behind: %s", r)
			}
		})
	}
	t.Run("ASymlinkOutOfTheRoot", func(t *testing.T) {
		if r := a.ask(http.MethodPost, "/dataflows/start", push("link", toFile("out", "link/tmp/escaped"))); r.status != http.StatusOK {
			t.Fatalf("start: %s", r)
		}
		if got := a.becomes("link", "TERMINATED"); !strings.Contains(fmt.Sprint(got.json["error"]), "outside root") {
			t.Errorf("status = %s", got)
		}
	})
	t.Run("ALengthThatDoesNotMatch", func(t *testing.T) {
		m := push("length", toFile("out", "length"))
		m["metadata"] = map[string]any{"contentLength": 7}
		a.ask(http.MethodPost, "/dataflows/start", m)
		if got := a.becomes("length", "TERMINATED"); !strings.Contains(fmt.Sprint(got.json["error"]), "length differs") {
			t.Errorf("status = %s", got)
		}
		p.holds("out", "link")
	})
	t.Run("NoTokenAndAWrongOne", func(t *testing.T) {
		for _, bearer := range []string{"", "wrong"} {
			r, err := a.try(t.Context(), http.MethodPost, "/dataflows/start", push("bad", toFile("out", "bad")), bearer)
			if err != nil || r.status != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("with %q: %s, %v", bearer, r, err)
			}
		}
	})
}
