//go:build unix

package flows_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/probate-dev/probate/tests/fleet"
)

// token is what control planes come with.
const token = "a-token-of-the-control-plane"

// Tokens of operators.
const (
	adasToken = "a-token-that-may-operate"
	evesToken = "a-token-that-may-read"
)

func operatorLines() []byte {
	return fmt.Appendf(nil, "operate ada sha256:%x\nread eve sha256:%x\n", sha256.Sum256([]byte(adasToken)), sha256.Sum256([]byte(evesToken)))
}

// plane is a fleet that moves data, and everything around it.
type plane struct {
	t        testing.TB
	dir      string
	store    string // its DSN
	environ  []string
	extra    string // of every node's dataflows section, two spaces deep
	datasets string // more of them, four spaces deep
	stores   string // of S3 that may be written to, comma-separated
	takeover string // of every node's takeover section
	from     *source
	sink     *sink
	control  *controlPlane
	nodes    map[string]*node
}

// node is one process of the fleet.
type node struct {
	*fleet.Node
	t    testing.TB
	base string // of its public listener
}

// newPlane makes a fleet that has not started. Its nodes share one file as
// their store, a source of n bytes as dataset "asset", and two roots: out, which
// is shared, and own, which is not.
func newPlane(t testing.TB, n int) *plane {
	t.Helper()
	p := &plane{t: t, dir: t.TempDir(), nodes: map[string]*node{}}
	p.store = "sqlite:" + filepath.Join(p.dir, "probate.db")
	p.from, p.sink, p.control = newSource(t, n), newSink(t), newControlPlane(t)
	for _, root := range []string{"in", "out", "own", "inbox"} {
		if err := os.Mkdir(filepath.Join(p.dir, root), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string][]byte{"in/file.bin": p.from.data, "operators": operatorLines()} {
		if err := os.WriteFile(filepath.Join(p.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// configuration of a node. The public address is known only when it listens, so
// a pull's data is offered at a name that tests resolve themselves.
func (p *plane) configuration() string {
	return fmt.Sprintf(`store: %s
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", allow: [127.0.0.0/8]}
operators: {tokens_file: %q}
takeover: {heartbeat: 150ms, statement_timeout: 500ms, lease_ttl: 3s, margin: 700ms, confirm_down: 300ms, probe_budget: 2500ms, dial_timeout: 400ms, header_timeout: 500ms, sweep_every: 1s, %s}
log: {format: json, level: debug}
dataflows:
  enabled: true
  public_url: http://data.example/dataflows
  tokens: [%s]
  control_plane: {url: %q, token: %s, pause: 50ms, timeout: 2s}
  note_every: 100ms
  stray_every: 300ms
  stall_timeout: 60s
  roots:
    - {name: in, path: %q, shared: true}
    - {name: out, path: %q, write: true, shared: true}
    - {name: own, path: %q, write: true}
    - {name: inbox, path: %q, write: true, shared: true}
  receive_in: inbox
  datasets:
    - {id: asset, http: {url: %q}}
    - {id: file, file: {root: in, path: file.bin}}
    - {id: gone, file: {root: in, path: gone.bin}}
%s  sinks: {http: [%q], s3: [%s]}
%s`, p.store, filepath.Join(p.dir, "operators"), p.takeover, token, p.control.url, controlToken,
		filepath.Join(p.dir, "in"), filepath.Join(p.dir, "out"), filepath.Join(p.dir, "own"), filepath.Join(p.dir, "inbox"),
		p.from.url, p.datasets, p.sink.url, p.stores, p.extra)
}

// start starts nodes and waits until they serve.
func (p *plane) start(slots ...string) []*node {
	p.t.Helper()
	started := make([]*node, 0, len(slots))
	for _, slot := range slots {
		started = append(started, p.launch(slot))
	}
	for _, n := range started {
		n.serves()
	}
	return started
}

func (p *plane) launch(slot string) *node {
	p.t.Helper()
	file := filepath.Join(p.dir, slot+".yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(p.configuration(), ", }", "}")), 0o600); err != nil {
		p.t.Fatal(err)
	}
	binary := probate(p.t)
	program := func(ctx context.Context, s fleet.Spec) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary, "serve", "--config", file, "--slot", s.Slot)
		cmd.Dir = p.dir
		cmd.Env = append([]string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}, p.environ...)
		return cmd
	}
	n := &node{Node: fleet.Launch(p.t, program, fleet.Spec{Slot: slot}), t: p.t}
	n.base = "http://" + n.Spec.Public
	p.nodes[slot] = n
	return n
}

// restart starts another process in a slot whose process has ended.
func (p *plane) restart(slot string) *node {
	p.t.Helper()
	n := p.launch(slot)
	n.serves()
	return n
}

func (n *node) serves() {
	n.t.Helper()
	within(n.t, n.Spec.Slot+" serves", func() bool {
		h, err := n.Health(n.t.Context())
		return err == nil && h.Ready
	})
}

// reply is an answer of a node.
type reply struct {
	status int
	header http.Header
	body   []byte
	json   map[string]any
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// state of the flow that the reply tells, or "".
func (r reply) state() string { s, _ := r.json["state"].(string); return s }

// code of the problem that the reply is.
func (r reply) code() string { s, _ := r.json["code"].(string); return s }

// ask sends a request with the control plane's token. It fails the test if no
// answer comes.
func (n *node) ask(method, path string, body any) reply {
	n.t.Helper()
	r, err := n.try(n.t.Context(), method, path, body, token)
	if err != nil {
		n.t.Fatalf("node %s: %v", n.Spec.Slot, err)
	}
	return r
}

func (n *node) try(ctx context.Context, method, path string, body any, bearer string) (reply, error) {
	var raw io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case string:
		raw = strings.NewReader(b)
	case []byte:
		raw = bytes.NewReader(b)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		raw = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.base+path, raw)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		return r, err
	}
	_ = json.Unmarshal(r.body, &r.json) // not every answer is JSON
	return r, nil
}

// message is a start or prepare message with members replaced; a nil value
// takes one out.
func message(id, profile string, replaced map[string]any) map[string]any {
	m := map[string]any{
		"messageId": "m-" + id, "participantId": "provider", "counterPartyId": "consumer", "dataspaceContext": "space",
		"processId": id, "agreementId": "agreement", "datasetId": "asset", "profile": profile,
		"claims": map[string]any{"membership": "active"}, "labels": []string{"gold"}, "metadata": map[string]any{},
		"@context": []string{"https://w3id.org/dspace-sig/v1.0"}, "later": map[string]any{"nobody": nil}, // not known, and ignored
	}
	maps.Copy(m, replaced)
	for name, value := range m {
		if value == nil {
			delete(m, name)
		}
	}
	return m
}

// toFile is the address of a file in a root.
func toFile(root, name string) map[string]any {
	return map[string]any{"@type": "DataAddress", "endpointType": "https://w3id.org/dspace-sig/profile/file-push", "endpoint": "file://" + root + "/" + name}
}

// toHTTP is the address of a path of the sink.
func (p *plane) toHTTP(path string) map[string]any {
	return map[string]any{
		"@type": "DataAddress", "endpointType": "https://w3id.org/dspace-sig/profile/http-push", "endpoint": p.sink.url + path,
		"endpointProperties": []map[string]any{
			{"@type": "EndpointProperty", "name": "authorization", "value": "T"},
			{"@type": "EndpointProperty", "name": "authType", "value": "bearer"},
		},
	}
}

const (
	httpPush = "https://w3id.org/dspace-sig/profile/http-push"
	httpPull = "https://w3id.org/dspace-sig/profile/http-pull"
)

// push is a start message that pushes the dataset to an address.
func push(id string, to map[string]any) map[string]any {
	return message(id, httpPush, map[string]any{"dataAddress": to})
}

// status of a flow.
func (n *node) status(id string) reply {
	n.t.Helper()
	return n.ask(http.MethodGet, "/dataflows/"+id+"/status", nil)
}

// becomes waits for a flow's state.
func (n *node) becomes(id, state string) reply {
	n.t.Helper()
	var last reply
	within(n.t, id+" becomes "+state, func() bool {
		last = n.status(id)
		if s := last.state(); s != state && (s == "COMPLETED" || s == "TERMINATED") {
			n.t.Fatalf("%s is %s, want %s", id, last, state)
		}
		return last.state() == state
	})
	return last
}

// whole demands that a file of a root is the source's bytes, and that nothing
// else is left in its folder.
func (p *plane) whole(root, name string) {
	p.t.Helper()
	got, err := os.ReadFile(filepath.Join(p.dir, root, name))
	if err != nil {
		p.t.Fatal(err)
	}
	sum := sha256.Sum256(got)
	if hex.EncodeToString(sum[:]) != p.from.sum() {
		p.t.Fatalf("%s/%s has %d bytes, and other ones than the source's %d", root, name, len(got), len(p.from.data))
	}
	p.holds(root, name)
}

// holds demands that a root holds these files and nothing else.
func (p *plane) holds(root string, names ...string) {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.dir, root))
	if err != nil {
		p.t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if fmt.Sprint(found) != fmt.Sprint(names) {
		p.t.Errorf("root %s holds %q, want %q", root, found, names)
	}
}
