//go:build unix

package tests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/probate-dev/probate/tests/fleet"
)

// block is a fenced block of README.md.
type block struct{ section, language, text string }

// readme is README.md, read.
type readme struct {
	text   string
	blocks []block
}

func readReadme(t *testing.T) readme {
	t.Helper()
	text := read(t, "README.md")
	r := readme{text: text}
	var section string
	var open *block
	for line := range strings.Lines(text) {
		switch heading, isHeading := strings.CutPrefix(line, "## "); {
		case open != nil && line == "```\n":
			r.blocks = append(r.blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		case isHeading:
			section = strings.TrimSpace(heading)
		case strings.HasPrefix(line, "```"):
			open = &block{section: section, language: strings.TrimSpace(line[3:])}
		}
	}
	if open != nil {
		t.Fatalf("a block in %q does not end", open.section)
	}
	return r
}

// read is a file of the tree.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// in returns the texts of a section's blocks in a language.
func (r readme) in(t *testing.T, section, language string, want int) []string {
	t.Helper()
	var texts []string
	for _, b := range r.blocks {
		if b.section == section && b.language == language {
			texts = append(texts, b.text)
		}
	}
	if len(texts) != want {
		t.Fatalf("%q has %d %s blocks, want %d", section, len(texts), language, want)
	}
	return texts
}

// rows are the cells of every table below a section's heading.
func (r readme) rows(t *testing.T, section string) [][]string {
	t.Helper()
	_, below, found := strings.Cut(r.text, "\n## "+section+"\n")
	if !found {
		t.Fatalf("there is no section %q", section)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	var rows [][]string
	for line := range strings.Lines(below) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
		}
		rows = append(rows, cells)
	}
	return rows
}

var codePattern = regexp.MustCompile("`([^`\n]+)`")

// code lists what a text sets as code.
func code(text string) []string {
	var found []string
	for _, m := range codePattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestReadme holds README.md against the tree and against the binary. What
// its blocks say is tested in the files readme_*_test.go.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := readReadme(t)
	t.Run("HasNoBlockThatIsNotTested", func(t *testing.T) {
		t.Parallel()
		var got []string
		for _, b := range r.blocks {
			got = append(got, b.section+": "+b.language)
		}
		want := []string{
			"In front of your service: yaml", "In front of your service: console",
			"Inside your Go service: go", "Inside your Go service: go",
			"Behind a balancer: haproxy", "Behind a balancer: nginx", "Behind a balancer: yaml",
			"Migrations: sh", "Health: console",
			"When a key is stuck: sh", "When a key is stuck: sh", "When a key is stuck: sh", "When a key is stuck: sh",
			"Moving data: yaml", "Moving data: json", "Moving data: console",
		}
		if !slices.Equal(got, want) {
			t.Errorf("blocks: %q\nwant:   %q", got, want)
		}
	})
	t.Run("NamesProblemsAndTheirStatus", func(t *testing.T) {
		t.Parallel()
		r.checkProblems(t)
	})
	t.Run("NamesKeysAndTheirDefaults", func(t *testing.T) {
		t.Parallel()
		r.checkKeys(t)
	})
	t.Run("QuotesWhatRecordsShowSays", func(t *testing.T) {
		t.Parallel()
		r.checkRunbook(t)
	})
	binary := fleet.Build(t, "../cmd/node")
	t.Run("NamesFlagsMetricsAndSettingsThatExist", func(t *testing.T) {
		t.Parallel()
		r.checkNames(t, binary)
	})
	t.Run("TellsASession", func(t *testing.T) {
		t.Parallel()
		r.runSession(t)
	})
	t.Run("MovesData", func(t *testing.T) {
		t.Parallel()
		r.moveData(t, binary)
	})
	t.Run("PutsAHandlerUnderTheNodeInTenLines", func(t *testing.T) {
		t.Parallel()
		r.runMiddleware(t)
	})
	t.Run("SetsUpHAProxyAsItIsTested", func(t *testing.T) {
		t.Parallel()
		r.checkHAProxy(t)
	})
	t.Run("SetsUpNginx", func(t *testing.T) {
		t.Parallel()
		r.checkNginx(t)
	})
	t.Run("SetsUpKubernetes", func(t *testing.T) {
		t.Parallel()
		r.checkKubernetes(t, binary)
	})
}

var kindPattern = regexp.MustCompile(`(?m)^\t(code\w+): \{\n\t\tstatus: (\d+)`)

// checkProblems compares the table of what clients observe with the problems
// that the API has.
func (r readme) checkProblems(t *testing.T) {
	source := read(t, "api/problem.go")
	statuses := map[string]string{}
	for _, m := range kindPattern.FindAllStringSubmatch(source, -1) {
		name := regexp.MustCompile(m[1] + ` +code = "(\w+)"`).FindStringSubmatch(source)
		if name == nil {
			t.Fatalf("%s has no text", m[1])
		}
		statuses[name[1]] = m[2]
	}
	seen := 0
	for _, row := range r.rows(t, "What clients observe") {
		if len(row) != 3 || row[1] == "status" {
			continue
		}
		for _, c := range code(row[2]) {
			seen++
			if s, ok := statuses[c]; !ok || !strings.Contains(row[1], s) {
				t.Errorf("%s: the table says %q, the API %q", c, row[1], s)
			}
		}
	}
	if seen < 9 {
		t.Errorf("the table has %d problems", seen)
	}
	headers := read(t, "api/headers.go")
	for _, row := range r.rows(t, "What clients observe") {
		if len(row) != 2 || row[0] != "`Idempotency-Status`" {
			continue
		}
		values := regexp.MustCompile(`(?m)^\tstatus\w+ += "(.+)"`).FindAllStringSubmatch(headers, -1)
		named := code(row[1])
		if len(named) != len(values) {
			t.Errorf("Idempotency-Status: the table says %q, the API %q", named, values)
		}
		for _, v := range values {
			if !slices.Contains(named, v[1]) {
				t.Errorf("the table lacks Idempotency-Status: %s", v[1])
			}
		}
	}
}

// example is probate.example.yaml.
func example(t *testing.T) map[string]any {
	t.Helper()
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "probate.example.yaml")), &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

// setting finds a key such as takeover.heartbeat or routes[].retention.
func setting(keys map[string]any, key string) (value any, found bool) {
	value = keys
	for part := range strings.SplitSeq(key, ".") {
		name, isList := strings.CutSuffix(part, "[]")
		m, _ := value.(map[string]any)
		if value, found = m[name]; !found {
			return nil, false
		}
		if list, ok := value.([]any); isList && ok && len(list) > 0 {
			value = list[0]
		}
	}
	return value, true
}

// checkKeys compares the table of keys with probate.example.yaml, whose
// defaults are tested where the configuration is.
func (r readme) checkKeys(t *testing.T) {
	keys := example(t)
	rows := r.rows(t, "Configuration")
	if len(rows) < 10 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows[1:] {
		key := code(row[0])[0]
		value, found := setting(keys, key)
		if !found {
			t.Errorf("%s is not in probate.example.yaml", key)
		}
		if d := code(row[1]); len(d) == 1 && d[0] != value {
			t.Errorf("%s: the table says %s, probate.example.yaml %v", key, d[0], value)
		}
	}
}

var quotePattern = regexp.MustCompile(`"([^"]+)"`)

// checkRunbook compares what the runbook quotes with what the binary says;
// that it says so of such a record is tested there.
func (r readme) checkRunbook(t *testing.T) {
	source := strings.ReplaceAll(read(t, "api/explain.go"), `Its owner is %s.`, "Its owner is fenced, or gone.")
	seen := 0
	for _, row := range r.rows(t, "When a key is stuck") {
		for _, m := range quotePattern.FindAllStringSubmatch(row[1], -1) {
			seen++
			if !strings.Contains(source, m[1]) {
				t.Errorf("records show does not say %q", m[1])
			}
		}
	}
	if seen < 9 {
		t.Errorf("the runbook quotes %d sentences", seen)
	}
}

// checkNames looks up what is set as code and has the form of a flag, a
// variable, a metric or a dotted key.
func (r readme) checkNames(t *testing.T, binary string) {
	keys, help := example(t), flags(t, binary)
	metrics := read(t, "cmd/node/metrics.go") + read(t, "cmd/node/metrics_flows.go")
	flag, variable := regexp.MustCompile(`--[a-z][a-z.-]*`), regexp.MustCompile(`PROBATE_[A-Z_]+`)
	metric, dotted := regexp.MustCompile(`^probate_([a-z_]+)$`), regexp.MustCompile(`^(internal|takeover|wait|log|tls)\.[a-z_.]+$`)
	variables := map[string]bool{"PROBATE_CONFIG": true, "PROBATE_OPERATOR_TOKEN": true}
	for name, value := range keys {
		upper := "PROBATE_" + strings.ToUpper(name)
		variables[upper] = true
		section, _ := value.(map[string]any)
		for below := range section {
			variables[upper+"_"+strings.ToUpper(below)] = true
		}
	}
	for _, v := range variable.FindAllString(r.text, -1) {
		if !variables[v] {
			t.Errorf("%s is no setting", v)
		}
	}
	for _, f := range flag.FindAllString(r.text, -1) {
		if !slices.Contains(help, f) {
			t.Errorf("no command has %s", f)
		}
	}
	for _, c := range code(r.text) {
		if _, known := setting(keys, c); dotted.MatchString(c) && !known {
			t.Errorf("%s is no setting", c)
		}
		if m := metric.FindStringSubmatch(c); m != nil && !strings.Contains(metrics, `"`+m[1]+`"`) && !strings.Contains(metrics, `"`+c+`"`) {
			t.Errorf("%s is no metric", c)
		}
	}
}

// flags are those of every command that the README may name.
func flags(t *testing.T, binary string) []string {
	t.Helper()
	var found []string
	for _, command := range []string{"serve", "records list", "records resolve", "records erase", "executors fence", "operators token", "probe", "demo"} {
		help, err := exec.CommandContext(t.Context(), binary, append(strings.Fields(command), "--help")...).Output()
		if err != nil {
			t.Fatalf("%s --help: %v", command, err)
		}
		found = append(found, regexp.MustCompile(`--[a-z][a-z.-]*`).FindAllString(string(help), -1)...)
	}
	return found
}
