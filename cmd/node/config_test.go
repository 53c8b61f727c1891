package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

// faultsIn reads a configuration and returns its faults, line by line, with
// the file called probate.yaml.
func faultsIn(t *testing.T, text string, environ, flags map[string]string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "probate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readConfig(settings{file: file, environ: environ, flags: flags})
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.ReplaceAll(err.Error(), file, "probate.yaml"), "\n")
	return lines[1:]
}

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("ReportsWhatCannotWorkTogetherAtItsPlace", func(t *testing.T) {
		t.Parallel()
		text := `listen: nowhere
internal:
  listen: 127.0.0.1:8081
  allow: [loopback]
  tls: {cert: a.pem}
cluster: ""
takeover:
  heartbeat: 10s
  margin: 0s
log: {level: loud}
audit: {level: none, retention: 0s}
routes:
  - match: {methods: [GET], path: orders}
    upstream: ftp://x
    operation: a
    principal: everybody
    profile: soap
`
		got := faultsIn(t, text, nil, map[string]string{"wait.default": "2m"})
		want := []string{
			`probate.yaml:16: routes[0].principal: "everybody" is neither none nor authorize, nor a mapping of headers, jwt or trusted_header`,
			`probate.yaml:6: cluster: want 1 to 255 bytes`,
			`probate.yaml:1: listen: "nowhere": want host:port or :port`,
			`probate.yaml:4: internal.allow: "loopback" is no network such as 10.0.0.0/8`,
			`probate.yaml:5: internal.tls: want both cert and key, or neither`,
			`probate.yaml:10: log.level: "loud" is none of debug, info, warn, error`,
			`probate.yaml:11: audit.level: "none" is none of unusual, all, off`,
			`probate.yaml:11: audit.retention: 0s: want more than that`,
			`probate.yaml:9: takeover.margin: 0s: want more than that`,
			`probate.yaml:8: takeover: 3.6 × heartbeat 10s + statement timeout 1s = 37s is more than lease ttl 15s − margin 0s = 15s`,
			`--wait.default: wait: default 2m0s is more than max 1m0s`,
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("missing: %s", w)
			}
		}
		for _, part := range []string{
			"is more than probe budget 5s", "routes[0].match.methods: GET is never recorded",
			"routes[0].match.path: \"orders\" does not begin with /", "routes[0].upstream", "routes[0].profile: \"soap\"",
		} {
			if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, part) }) {
				t.Errorf("no fault says %q", part)
			}
		}
		if n := strings.Count(strings.Join(got, "\n"), "routes[0].principal"); n != 1 {
			t.Errorf("the principal is reported %d times, want once", n)
		}
		for _, line := range got {
			if strings.Contains(line, "on_server_error") {
				t.Errorf("a fault that only follows from another is reported: %s", line)
			}
		}
		if !strings.HasPrefix(got[0], "probate.yaml:1: ") || !strings.HasPrefix(got[len(got)-1], "--wait") {
			t.Error("the faults do not come in order of their places")
		}
		if t.Failed() {
			t.Log(strings.Join(got, "\n"))
		}
	})

	t.Run("LetsTheDatabaseURLStandInForAStore", func(t *testing.T) {
		t.Parallel()
		environ := map[string]string{"DATABASE_URL": "postgres://h/d"}
		for _, c := range []struct {
			environ, flags map[string]string
			want           string
		}{
			{environ, nil, "postgres://h/d"},
			{nil, nil, "sqlite:probate.db"},
			{environ, map[string]string{"store": "sqlite:x"}, "sqlite:x"},
		} {
			s := settings{environ: c.environ, flags: c.flags}
			if got := s.readAll().Store; got != c.want {
				t.Errorf("store = %q, want %q", got, c.want)
			}
		}
	})

	t.Run("NeverRepeatsAPassword", func(t *testing.T) {
		t.Parallel()
		got := strings.Join(faultsIn(t, "store: 'postgres://u:hunter2@h:port/d'\n", nil, nil), "\n")
		if !strings.Contains(got, "store: want postgres://") || strings.Contains(got, "hunter2") {
			t.Errorf("faults:\n%s", got)
		}
		c := Config{Store: "postgres://u:hunter2@h:5432/d?sslmode=disable"}
		if got, want := c.storeName(), "postgres://h:5432/d"; got != want {
			t.Errorf("store name %q, want %q", got, want)
		}
		c.Store = "host=h password=hunter2"
		if got, want := c.storeName(), "postgres"; got != want {
			t.Errorf("store name %q, want %q", got, want)
		}
	})
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	const postgres, sqlite = "store: postgres://h/d\n", "store: sqlite:x.db\n"
	for name, c := range map[string]struct {
		text  string
		url   string // advertised, with the listener on port 9
		fault string
	}{
		"DefaultsToTheListener":                       {sqlite + "internal: {listen: '127.0.0.1:8081'}", "http://127.0.0.1:9", ""},
		"DefaultsToLoopbackForSQLite":                 {sqlite + "internal: {listen: ':8081'}", "http://127.0.0.1:9", ""},
		"MustBeSaidForAWildcardWithPostgreSQL":        {postgres + "internal: {listen: ':8081'}", "", "internal.advertise: missing: internal.listen :8081"},
		"MustNotBeLoopbackWithPostgreSQL":             {postgres, "", "internal.advertise: http://127.0.0.1:8081 leads peers on other hosts to themselves"},
		"MustNotBeLocalhostWithPostgreSQL":            {postgres + "internal: {advertise: 'http://localhost:8081'}", "", "leads peers on other hosts"},
		"MayBeLoopbackIfAllowNamesIt":                 {postgres + "internal: {allow: [127.0.0.0/8]}", "http://127.0.0.1:9", ""},
		"MustNotBeLoopbackBecauseEverythingIsAllowed": {postgres + "internal: {allow: [0.0.0.0/0]}", "", "leads peers on other hosts"},
		"MustBeAllowed":                               {sqlite + "internal: {allow: [10.0.0.0/8], advertise: 'http://192.0.2.1:1'}", "", "is in no network of internal.allow"},
		"MayBeAName":                                  {postgres + "internal: {listen: ':8081', advertise: 'http://node-1:8081'}", "http://node-1:8081", ""},
		"MustNotHaveAPath":                            {sqlite + "internal: {advertise: 'http://h/probe'}", "", "has more than scheme, host and port"},
		"MustNotBeAWildcard":                          {sqlite + "internal: {advertise: 'http://0.0.0.0:1'}", "", "is every address"},
		"MustSpeakWhatTheListenerSpeaks":              {sqlite + "internal: {advertise: 'https://h:1'}", "", "makes the internal listener speak http"},
		"KnowsIPv6":                                   {sqlite + "internal: {listen: '[::1]:8081'}", "http://[::1]:9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(faultsIn(t, c.text, nil, nil), "\n")
			if c.fault == "" && got != "" || !strings.Contains(got, c.fault) {
				t.Fatalf("faults %q, want %q", got, c.fault)
			}
			if c.fault != "" {
				return
			}
			file := filepath.Join(t.TempDir(), "probate.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := readConfig(settings{file: file})
			if err != nil {
				t.Fatal(err)
			}
			if got := config.advertised("127.0.0.1:9"); got != c.url {
				t.Errorf("advertised %q, want %q", got, c.url)
			}
		})
	}
}

// TestDataflows is about what a data plane can be told.
func TestDataflows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"NeedsTokensBeyondLoopback": {"dataflows: {enabled: true}", `dataflows.tokens: missing: whoever reaches listen ":8080" could have data moved`},
		"TakesShortTokensForNone":   {"dataflows: {tokens: [short]}", "tokens: one is shorter than 16 bytes"},
		"ListsWhatItDoesNotKnow":    {"dataflows: {datasets: [{id: a, file: {root: nowhere, path: x}}]}", `datasets: "a": file: there is no root "nowhere"`},
		"KeepsFilesInTheirRoots":    {"dataflows: {roots: [{name: r, path: /srv}], datasets: [{id: a, file: {root: r, path: ../x}}]}", "leads out of its root"},
		"WantsOneKindOfEnd":         {"dataflows: {datasets: [{id: a}]}", "want one of http, file and s3"},
		"ReceivesOnlyWhereItWrites": {"dataflows: {roots: [{name: r, path: /srv}], receive_in: r}", `receive_in: "r" is not the name of a root with write`},
		"KnowsTwoAnswers":           {"dataflows: {answer: maybe}", `dataflows.answer: "maybe" is neither sync nor async`},
		"KnowsTwoDuplicates":        {"dataflows: {duplicate_start: maybe}", `dataflows.duplicate_start: "maybe" is neither replay nor reject`},
		"WantsALineForFlows":        {"dataflows: {queue: 0}", "dataflows.queue: want more than 0"},
		"RegistersUnderAName":       {"dataflows: {registration: {url: http://cp}}", "dataflows.registration: wants id and profiles"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := faultsIn(t, c.text, nil, nil)
			if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, c.want) }) {
				t.Errorf("faults %q, want %q", got, c.want)
			}
		})
	}
	t.Run("ReportsEachFaultAtItsPlace", func(t *testing.T) {
		t.Parallel()
		got := faultsIn(t, `dataflows:
  enabled: true
  roots: [{name: r, path: srv}]
  datasets:
    - {id: a}
    - {id: b, http: {url: "ftp://b"}}
`, nil, nil)
		want := []string{
			`probate.yaml:2: dataflows.tokens: missing`,
			`probate.yaml:3: dataflows.roots: r: "srv" is not an absolute path`,
			`probate.yaml:5: dataflows.datasets: "a": want one of http, file and s3`,
			`probate.yaml:5: dataflows.datasets: "b": want an absolute URL`,
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("faults %q, want %q", got, want)
		}
	})
	t.Run("NeedsNoneOnLoopback", func(t *testing.T) {
		t.Parallel()
		if got := faultsIn(t, "listen: 127.0.0.1:0\ndataflows: {enabled: true}", nil, nil); len(got) > 0 {
			t.Errorf("faults: %q", got)
		}
	})
}

// TestExample keeps the example configuration complete and true.
func TestExample(t *testing.T) {
	t.Parallel()
	const file = "../../probate.example.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("IsValidAndShowsTheDefaults", func(t *testing.T) {
		t.Parallel()
		c, err := readConfig(settings{file: file})
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmpopts.IgnoreFields(Config{}, "Routes", "Dataflows.Roots", "Dataflows.Datasets", "Dataflows.Sources", "Dataflows.Sinks", "Dataflows.ReceiveIn")
		if diff := cmp.Diff(defaultConfig(), c, ignore, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Config{}, Principal{}, Reconcile{})); diff != "" {
			t.Errorf("the example differs from the defaults (-default +example):\n%s", diff)
		}
	})

	t.Run("HasEveryKey", func(t *testing.T) {
		t.Parallel()
		var document yaml.Node
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		// Of these one alternative can be shown; the others stand in a comment.
		alternatives := []string{"realm", "principal", "reconcile", "datasets"}
		for path, name := range missingKeys(document.Content[0], reflect.TypeFor[Config](), "") {
			parents := strings.Split(path, ".")
			if len(parents) > 1 && slices.Contains(alternatives, parents[len(parents)-2]) && strings.Contains(string(text), name+":") {
				continue
			}
			t.Errorf("%s is not in the example", path)
		}
	})
}

// missingKeys are the keys of a struct that a document has not, by path.
func missingKeys(n *yaml.Node, typ reflect.Type, path string) map[string]string {
	missing := map[string]string{}
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		if typ.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
			n = n.Content[0]
		}
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
		return missing
	}
	for f := range typ.Fields() {
		name := f.Tag.Get("yaml")
		if name == "" {
			continue
		}
		at, value := join(path, name), (*yaml.Node)(nil)
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j].Value == name {
				value = n.Content[j+1]
			}
		}
		if value == nil {
			missing[at] = name
			continue
		}
		maps.Copy(missing, missingKeys(value, f.Type, at))
	}
	return missing
}

// FuzzConfig: no file makes a node panic, or fails without saying at which
// path.
func FuzzConfig(f *testing.F) {
	text, err := os.ReadFile("../../probate.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("store: sqlite:\nlisten: ':'\ninternal: {listen: '[::]:1', allow: [::/0]}\n")
	f.Add("routes: [{match: {path: '/{'}, reconcile: {get: '{'}, fingerprint: {ignore_json: ['~']}, realm: {}}]")
	file := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readConfig(settings{file: file})
		for _, one := range faultsOf(err) {
			if err != nil && !strings.Contains(one.Error(), ": ") {
				t.Errorf("a fault without a place: %v", one)
			}
		}
	})
}
