//go:build unix

package tests_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// newcomer follows the README in a folder of her own that looks like a clone.
// Only the ports are others.
type newcomer struct {
	folder string
	env    []string
	ports  *strings.Replacer
	node   string // its public address
}

func newNewcomer(t *testing.T) newcomer {
	t.Helper()
	folder := t.TempDir()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "bin" && name != "probate.yaml" && !strings.HasPrefix(name, ".") {
			if err := os.Symlink(filepath.Join(here, name), filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const token = "a token of hers"
	operators := filepath.Join(t.TempDir(), "operators")
	line := fmt.Sprintf("operate newcomer sha256:%x\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(operators, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	service, public, internal := freeAddress(t), freeAddress(t), freeAddress(t)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "PROBATE_") || strings.HasPrefix(v, "DATABASE_URL=")
	})
	return newcomer{
		folder: folder, node: public,
		env: append(env, "PROBATE_LISTEN="+public, "PROBATE_INTERNAL_LISTEN="+internal, "NO_PROXY=*",
			"PROBATE_OPERATORS_TOKENS_FILE="+operators, "PROBATE_OPERATOR_TOKEN="+token),
		ports: strings.NewReplacer("127.0.0.1:9000", service, "localhost:8080", public, "127.0.0.1:8081", internal),
	}
}

// freeAddress is one on which nobody listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// command is a line of a shell in her folder.
func (n newcomer) command(t *testing.T, line string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", n.ports.Replace(line))
	cmd.Dir, cmd.Env = n.folder, append(slices.Clone(n.env), env...)
	return cmd
}

// run runs a line and returns what it wrote, and its exit code.
func (n newcomer) run(t *testing.T, line string, env ...string) (out string, code int) {
	t.Helper()
	cmd := n.command(t, line, env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if code != 0 {
		t.Logf("%s: exit code %d\n%s", line, code, complaints.String())
	}
	return string(text), code
}

// console types what follows a prompt, and compares what comes with the lines
// below it.
func (n newcomer) console(t *testing.T, text string) {
	t.Helper()
	for part := range strings.SplitSeq("\n"+strings.TrimSuffix(text, "\n"), "\n$ ") {
		line, want, _ := strings.Cut(part, "\n")
		if line == "" {
			continue
		}
		if line, background := strings.CutSuffix(line, " &"); background {
			n.start(t, line)
			continue
		}
		out, code := n.run(t, line)
		if code != 0 {
			t.Errorf("%s: exit code %d", line, code)
		}
		if missing := missingLine(out, want); missing != "" {
			t.Errorf("%s: no line %q, or not in this order, in\n%s", line, missing, out)
		}
	}
}

// start starts what the README starts in the background, and waits for it.
func (n newcomer) start(t *testing.T, line string) {
	t.Helper()
	p := fleet.Start(t, line, n.command(t, "exec env "+line))
	fleet.Await(t, line, func() bool {
		if p.Ended() {
			t.Fatalf("%s: it ended", line)
		}
		if !strings.Contains(line, "serve") {
			return p.Output.Has("listening")
		}
		return n.command(t, "bin/probate probe http://"+n.node).Run() == nil
	})
}

// missingLine is the first wanted line that got lacks, or has out of order; …
// stands for anything.
func missingLine(got, want string) string {
	lines := strings.Split(strings.ReplaceAll(got, "\r", ""), "\n")
	for w := range strings.SplitSeq(want, "\n") {
		if w == "" {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*") + "$")
		at := slices.IndexFunc(lines, pattern.MatchString)
		if at < 0 {
			return w
		}
		lines = lines[at+1:]
	}
	return ""
}

// runSession follows the sections that have a node running, in their order.
func (r readme) runSession(t *testing.T) {
	fleet.DependOnSources(t)
	for _, c := range []struct{ got, want, missing string }{
		{"HTTP/1.1 201\r\nA: 1\r\n\r\nx", "HTTP/1.1 201\nA: …\nx", ""},
		{"A: 1", "A: 2", "A: 2"},
		{"b\na", "a\nb", "b"},
	} {
		if got := missingLine(c.got, c.want); got != c.missing {
			t.Errorf("of %q in %q is missing %q, want %q", c.want, c.got, got, c.missing)
		}
	}
	n := newNewcomer(t)
	config := n.ports.Replace(r.in(t, "In front of your service", "yaml", 1)[0])
	if err := os.WriteFile(filepath.Join(n.folder, "probate.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.console(t, r.in(t, "In front of your service", "console", 1)[0])
	n.console(t, r.in(t, "Health", "console", 1)[0])
	n.operate(t, r.in(t, "When a key is stuck", "sh", 4))
	n.migrate(t, r.in(t, "Migrations", "sh", 1)[0])
}

// operate runs the commands of the runbook on the record of the session.
func (n newcomer) operate(t *testing.T, blocks []string) {
	t.Helper()
	var listed struct {
		Records []struct{ Record, Executor string }
	}
	out, _ := n.run(t, "bin/probate records list -o json")
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed.Records) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	record, executor := listed.Records[0].Record, listed.Records[0].Executor
	says := map[string]string{
		"records list --key": record, "records show": "Nothing is to be done.", "executors list": executor, "doctor": "ok",
		"records erase": "erased what 0 records said", "operators token": "operate ada sha256:",
	}
	for line := range strings.Lines(strings.Join(blocks, "")) {
		out, code := n.run(t, strings.TrimSpace(line), "RECORD="+record, "EXECUTOR="+executor)
		refused := strings.Contains(line, "executors fence") || // it lives
			strings.Contains(line, `"$RECORD" --reason`) // it is finalized
		if refused != (code == 4) || !refused && code != 0 {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
		for command, said := range says {
			if strings.Contains(line, command) {
				if !strings.Contains(out, said) {
					t.Errorf("%s does not say %q\n%s", line, said, out)
				}
				delete(says, command)
			}
		}
	}
	if len(says) > 0 {
		t.Errorf("not run: %q", says)
	}
}

// migrate runs both tools on one database.
func (n newcomer) migrate(t *testing.T, block string) {
	t.Helper()
	tool := filepath.Join(n.folder, "bin", "migrate")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "postgres", "-o", tool, "github.com/golang-migrate/migrate/v4/cmd/migrate")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the migrate tool: %v\n%s", err, out)
	}
	database := "DATABASE_URL=" + postgrestest.Shared(t).Empty(t)
	path := "PATH=" + filepath.Dir(tool) + string(os.PathListSeparator) + os.Getenv("PATH")
	for line := range strings.Lines(block) {
		if out, code := n.run(t, strings.TrimSpace(line), database, path); code != 0 {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
	}
}
