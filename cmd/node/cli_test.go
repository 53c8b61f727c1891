package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()

	t.Run("ExplainsItselfWithoutArguments", func(t *testing.T) {
		t.Parallel()
		bare, help := invoke(t, nil), invoke(t, nil, "--help")
		if bare != help || help.code != exitDone || !strings.Contains(help.out, "Exit codes: 0 done") {
			t.Errorf("%+v", bare)
		}
	})

	t.Run("HasExamplesInEveryHelp", func(t *testing.T) {
		t.Parallel()
		for _, command := range []string{
			"serve", "migrate", "probe", "records list", "records show", "executors list", "executors fence",
			"fleet rekey", "purge", "bench", "doctor", "completion",
		} {
			r := invoke(t, nil, append(strings.Fields(command), "--help")...)
			if r.code != exitDone || !strings.Contains(r.out, "Example") || !strings.Contains(r.out, "  probate ") && !strings.Contains(r.out, "(probate ") {
				t.Errorf("probate %s --help: exit code %d\n%s%s", command, r.code, r.out, r.err)
			}
		}
	})

	t.Run("RefusesWhatItDoesNotKnow", func(t *testing.T) {
		t.Parallel()
		for _, args := range []string{
			"sevre", "serve --lisen :1", "serve extra", "records", "records show", "records show abc", "probe localhost",
			"records list --state done", "records list --limit 0", "records list --after x", "records list --executor x",
			"executors fence x", "completion tcsh", "-o yaml version", "bench --concurrency 0", "bench --header x", "purge --batch 0",
		} {
			if r := invoke(t, nil, strings.Fields(args)...); r.code != exitUsage || r.err == "" || r.out != "" {
				t.Errorf("probate %s: %+v", args, r)
			}
		}
	})

	t.Run("SaysHowACommandIsCalled", func(t *testing.T) {
		t.Parallel()
		for args, want := range map[string]string{
			"sevre":        "Usage: probate <command> [flags]\nprobate --help says more.\n",
			"records":      "Usage: probate records <command> [flags]\nprobate records --help says more.\n",
			"records show": "Usage: probate records show <record> [flags]\nprobate records show --help says more.\n",
		} {
			if r := invoke(t, nil, strings.Fields(args)...); !strings.HasSuffix(r.err, "\n"+want) {
				t.Errorf("probate %s: %q, want %q at the end", args, r.err, want)
			}
		}
	})

	t.Run("MapsErrorsToExitCodes", func(t *testing.T) {
		t.Parallel()
		for code, errs := range map[int][]error{
			exitDone:    {nil},
			exitFailed:  {errors.New("x"), takeover.ErrReplaced, errStoppedTwice},
			exitUsage:   {usageError{errors.New("x")}, fmt.Errorf("y: %w", configError{errors.New("x")})},
			exitStore:   {records.ErrUnavailable, fmt.Errorf("y: %w", records.ErrWrongCluster), records.ErrForeignHost, records.ErrSchemaTooOld},
			exitRefused: {records.ErrNotFound, records.ErrLeaseHeld, fmt.Errorf("y: %w", takeover.ErrSlotInUse)},
		} {
			for _, err := range errs {
				if got := exitCode(err); got != code {
					t.Errorf("exit code of %v = %d, want %d", err, got, code)
				}
			}
		}
	})

	t.Run("AdvisesOnWhatAnOperatorCanMend", func(t *testing.T) {
		t.Parallel()
		for err, part := range map[error]string{
			records.ErrForeignHost:  "For several hosts use PostgreSQL",
			takeover.ErrSlotInUse:   "a slot of its own",
			records.ErrSchemaTooOld: "probate migrate up",
			records.ErrUnavailable:  "probate doctor",
			records.ErrWrongCluster: "fleet rekey",
		} {
			if got := advice(fmt.Errorf("start: %w", err)); !strings.Contains(got, part) {
				t.Errorf("advice on %v = %q, want %q in it", err, got, part)
			}
		}
		if got := advice(errors.New("x")); got != "" {
			t.Errorf("advice on something unknown: %q", got)
		}
	})

	t.Run("ReadsTheFileThatPROBATE_CONFIGNames", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "other.yaml")
		if err := os.WriteFile(file, []byte("cluster: ''\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke(t, []string{"PROBATE_CONFIG=" + file}, "serve", "--check")
		if r.code != exitUsage || !strings.Contains(r.err, file+":1: cluster") {
			t.Errorf("%+v", r)
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "probate.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	route := "routes:\n- match: {methods: [POST], path: /a}\n  upstream: http://a\n  operation: %s\n  principal: none\n"

	t.Run("WarnsOfRoutesThatCanLockAKey", func(t *testing.T) {
		t.Parallel()
		file := write(t, fmt.Sprintf(route, "pay"))
		r := invoke(t, nil, "serve", "--check", "--config", file)
		want := result{
			exitDone, "configuration is valid: 1 routes, 1 warnings, store sqlite:probate.db\n",
			"warning: route \"pay\" has no reconcile: one lost reply locks its key for 720h0m0s\n",
		}
		if diff := cmp.Diff(want, r, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		v := okJSON(t, "serve", "--check", "--config", file)
		if v["valid"] != true || len(v["warnings"].([]any)) != 1 {
			t.Errorf("JSON: %v", v)
		}
	})

	t.Run("ReportsAllFaultsAndOpensNothing", func(t *testing.T) {
		t.Parallel()
		store := filepath.Join(t.TempDir(), "never.db")
		file := write(t, "store: sqlite:"+store+"\nlissen: x\nwait: {max: soon}\n"+fmt.Sprintf(route, "''"))
		r := invoke(t, nil, "serve", "--check", "--config", file)
		want := fmt.Sprintf(`probate: configuration:
%[1]s:2: lissen: unknown key; known here: audit, cluster, connections, dataflows, internal, listen, log, memory_bytes, operators, pass_through, pooler, probe_path, problem_types, redact, routes, seal, slot, store, takeover, tls, wait
%[1]s:3: wait.max: "soon" is not a duration such as 1s, 500ms or 24h
%[1]s:7: routes[0].operation: want a name of 1 to 255 bytes
`, file)
		if diff := cmp.Diff(result{exitUsage, "", want}, r, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := os.Stat(store); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the check made a store: %v", err)
		}
	})
}

func TestCompletion(t *testing.T) {
	t.Parallel()

	t.Run("KnowsCommandsFlagsAndTheirValues", func(t *testing.T) {
		t.Parallel()
		for line, want := range map[string]string{
			"":                          "bench completion demo doctor executors fleet flows migrate operators probe purge records seal serve version",
			"rec":                       "records",
			"records ":                  "erase list reconcile release resolve show",
			"operators token a --role ": "operate read",
			"-o json exec":              "executors",
			"-o json executors f":       "fence",
			"records list --state ":     "finalized in_progress released unknown",
			"records list --state un":   "unknown",
			"records list --o":          "--older-than --operation --output",
			"serve --takeover.lease":    "--takeover.lease-ttl",
			"completion ":               "bash fish zsh",
			"serve --listen ":           "",
			"executors list --nonsense": "",
		} {
			got := strings.Fields(ok(t, append([]string{"__complete"}, strings.Split(line, " ")...)...))
			if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
				t.Errorf("completing %q (-want +got):\n%s", line, diff)
			}
		}
	})

	t.Run("HasAScriptForEachShell", func(t *testing.T) {
		t.Parallel()
		for _, shell := range []string{"bash", "zsh", "fish"} {
			if script := ok(t, "completion", shell); !strings.Contains(script, "probate __complete") {
				t.Errorf("%s: %s", shell, script)
			}
		}
	})
}

func TestOutput(t *testing.T) {
	t.Parallel()

	t.Run("IsColouredOnlyWhereColoursAreWanted", func(t *testing.T) {
		t.Parallel()
		var b strings.Builder
		rows := [][]cell{{{"a", plain}, {"active", green}, {"x", plain}}}
		(&env{}).table(&text{w: &b}, []string{"ID", "STATE", "Z"}, rows)
		if want := "ID  STATE   Z\na   active  x\n"; b.String() != want {
			t.Errorf("table:\n%s\nwant:\n%s", b.String(), want)
		}
		b.Reset()
		(&env{colours: true}).table(&text{w: &b}, []string{"ID", "STATE", "Z"}, rows)
		if want := "\x1b[1mID\x1b[0m  \x1b[1mSTATE\x1b[0m   \x1b[1mZ\x1b[0m\na   \x1b[32mactive\x1b[0m  x\n"; b.String() != want {
			t.Errorf("coloured table:\n%q\nwant:\n%q", b.String(), want)
		}
	})

	t.Run("LetsNoClientWriteToATerminal", func(t *testing.T) {
		t.Parallel()
		for in, want := range map[string]string{
			"plain": "plain", "": `""`, "a b": "a b", "\x1b[2J": `"\x1b[2J"`, "line\nfeed": `"line\nfeed"`, "\xff": `"\xff"`, `"q"`: `"\"q\""`,
		} {
			if got := harmless(in); got != want {
				t.Errorf("harmless(%q) = %s, want %s", in, got, want)
			}
		}
		for in, want := range map[string]string{
			"a \"b\" ü": `a "b" ü`, "\x1b[2J": `\x1b[2J`, "line\nfeed\r": `line\nfeed\r`, "\xff": "\ufffd", "\u202e": `\u202e`, "": "",
		} {
			if got := legible(in); got != want {
				t.Errorf("legible(%q) = %s, want %s", in, got, want)
			}
		}
	})

	t.Run("IsJSONWhereAsked", func(t *testing.T) {
		t.Parallel()
		var v struct {
			Version, Go string
			Schema      int
		}
		if err := json.Unmarshal([]byte(ok(t, "version", "-o", "json")), &v); err != nil || v.Version == "" || v.Schema < 1 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
