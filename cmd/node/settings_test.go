package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sample struct {
	Store    string        `yaml:"store"`
	Count    int           `yaml:"count"`
	Takeover sampleNested  `yaml:"takeover"`
	Allow    []string      `yaml:"allow"`
	Routes   []sampleRoute `yaml:"routes"`
}

type sampleNested struct {
	LeaseTTL time.Duration `yaml:"lease_ttl"`
	Strict   bool          `yaml:"strict"`
}

type sampleRoute struct {
	Path  string      `yaml:"path"`
	Realm sampleRealm `yaml:"realm"`
	Extra *sampleWord `yaml:"extra"`
}

type sampleRealm struct {
	Constant string `yaml:"constant"`
	Header   string `yaml:"header"`
}

var _ scalarSetter = (*sampleRealm)(nil)

func (r *sampleRealm) setScalar(word string) error {
	r.Constant = word
	return nil
}

type sampleWord struct {
	Word string `yaml:"word"`
}

// readSample reads a file with this text, without a file if it is empty.
func readSample(t *testing.T, text string, environ, flags map[string]string) (sample, string) {
	t.Helper()
	s := settings{environ: environ, flags: flags}
	if text != "" {
		s.file = filepath.Join(t.TempDir(), "probate.yaml")
		if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got sample
	err := s.read(&got)
	if err == nil {
		return got, ""
	}
	return got, strings.ReplaceAll(err.Error(), s.file, "probate.yaml")
}

func TestSettings(t *testing.T) {
	t.Run("FlagsOverrideTheEnvironmentAndThatTheFile", func(t *testing.T) {
		file := "store: file\ncount: 1\ntakeover: {lease_ttl: 1s}\n"
		got, faults := readSample(t, file,
			map[string]string{"PROBATE_STORE": "environment", "PROBATE_TAKEOVER_LEASE_TTL": "2s", "PROBATE_ALLOW": "10.0.0.0/8, ::1/128"},
			map[string]string{"takeover.lease_ttl": "3s"})
		want := sample{
			Store: "environment", Count: 1, Takeover: sampleNested{LeaseTTL: 3 * time.Second},
			Allow: []string{"10.0.0.0/8", "::1/128"},
		}
		if diff := cmp.Diff(want, got); diff != "" || faults != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, faults)
		}
	})

	t.Run("ReadsListsWordsAndMappings", func(t *testing.T) {
		file := "routes:\n- path: /a\n  realm: shop\n- path: ${HOME_PATH}/b\n  realm: {header: X-Tenant}\n  extra: {word: w}\n"
		got, faults := readSample(t, file, map[string]string{"HOME_PATH": "/home"}, nil)
		want := sample{Routes: []sampleRoute{
			{Path: "/a", Realm: sampleRealm{Constant: "shop"}},
			{Path: "/home/b", Realm: sampleRealm{Header: "X-Tenant"}, Extra: &sampleWord{Word: "w"}},
		}}
		if diff := cmp.Diff(want, got); diff != "" || faults != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, faults)
		}
	})

	t.Run("ReportsEveryFaultAtOnceWithItsPlace", func(t *testing.T) {
		file := "stor: x\ncount: many\ncount: 2\ntakeover:\n  lease_ttl: 15\n  strict: [a]\nroutes:\n- path: {a: b}\n  realm: ${NOBODY_SET_THIS}\n- 7\n"
		_, faults := readSample(t, file, map[string]string{"PROBATE_TAKEOVER_STRICT": "perhaps"}, map[string]string{"count": "x"})
		want := strings.TrimSpace(`
probate.yaml:1: stor: unknown key; known here: allow, count, routes, store, takeover
probate.yaml:2: count: "many" is not a whole number
probate.yaml:3: count: given twice
probate.yaml:5: takeover.lease_ttl: "15" is not a duration such as 1s, 500ms or 24h
probate.yaml:6: takeover.strict: wants a bool, not a list
probate.yaml:8: routes[0].path: wants a string, not a mapping
probate.yaml:9: routes[0].realm: ${NOBODY_SET_THIS} is not set in the environment
probate.yaml:10: routes[1]: wants a mapping of extra, path, realm, not one word
--count: count: "x" is not a whole number
PROBATE_TAKEOVER_STRICT: takeover.strict: "perhaps" is neither true nor false`)
		if diff := cmp.Diff(want, faults); diff != "" {
			t.Errorf("faults (-want +got):\n%s", diff)
		}
	})

	t.Run("NamesAFileThatCannotBeReadOrParsed", func(t *testing.T) {
		s := settings{file: filepath.Join(t.TempDir(), "missing.yaml")}
		if err := s.read(&sample{}); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
			t.Errorf("missing file: %v", err)
		}
		if _, faults := readSample(t, "a: [", nil, nil); !strings.HasPrefix(faults, "probate.yaml: yaml:") {
			t.Errorf("bad YAML: %s", faults)
		}
	})
}

// FuzzSettings: no text makes the reader panic or set something without saying.
func FuzzSettings(f *testing.F) {
	f.Add("store: x\nroutes: [{path: /a, realm: {header: h}}]")
	f.Add("? {a: b}\n: &a [*a]")
	f.Add("store: ${A}\n---\nstore: 2")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		s := settings{file: filepath.Join(dir, "fuzz.yaml"), environ: map[string]string{"A": "1"}}
		if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got sample
		_ = s.read(&got)
	})
}
