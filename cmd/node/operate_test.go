package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)

	t.Run("ListFiltersAndPages", func(t *testing.T) {
		t.Parallel()
		for args, want := range map[string]int{
			"": 4, "--state unknown": 1, "--realm shop": 4, "--realm other": 0, "--operation order --state finalized": 1,
			"--executor " + p.executor.String(): 4, "--older-than 1h": 0,
		} {
			v := okJSON(t, append([]string{"records", "list", "--store", p.store}, strings.Fields(args)...)...)
			if got := len(v["records"].([]any)); got != want || v["more"] != false {
				t.Errorf("records list %s: %d records, want %d", args, got, want)
			}
		}
		var seen []string
		after := []string{}
		for {
			v := okJSON(t, append([]string{"records", "list", "--limit", "3", "--store", p.store}, after...)...)
			for _, r := range v["records"].([]any) {
				seen = append(seen, r.(map[string]any)["record"].(string))
			}
			if v["more"] != true {
				break
			}
			after = []string{"--after", v["next"].(string)}
		}
		if !slices.IsSorted(seen) || len(slices.Compact(seen)) != 4 {
			t.Errorf("pages held %q", seen)
		}
		if out := ok(t, "records", "list", "--limit", "3", "--store", p.store); !strings.Contains(out, "more: --after "+seen[2]) {
			t.Errorf("the table does not say how to go on:\n%s", out)
		}
	})

	t.Run("ShowExplainsEachState", func(t *testing.T) {
		t.Parallel()
		for state, part := range map[records.State]string{
			records.Finalized:  "replayed until it expires",
			records.Released:   "The key is free",
			records.Unknown:    "nobody can tell",
			records.InProgress: "cannot be understood from here",
		} {
			v := okJSON(t, "records", "show", p.ids[state].String(), "--store", p.store, "--internal.allow", "127.0.0.0/8")
			if got := fmt.Sprint(v["explanation"]); !strings.Contains(got, part) {
				t.Errorf("%s: %s", state, got)
			}
			if _, asked := v["verdict"]; asked != (state == records.InProgress) {
				t.Errorf("%s: its owner was asked: %t", state, asked)
			}
		}
	})

	t.Run("ShowAsksTheOwner", func(t *testing.T) {
		t.Parallel()
		// Nobody is at 192.0.2.1, and loopback is all that may be dialled.
		out := ok(t, "records", "show", p.ids[records.InProgress].String(), "--store", p.store, "--internal.allow", "127.0.0.0/8")
		for _, part := range []string{"in_progress", "key of in_progress", "slot elsewhere, active", "asked        unknown: ", "may not be dialled", "cannot be understood from here"} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is not in\n%s", part, out)
			}
		}
	})

	t.Run("ShowOfNothingIsRefused", func(t *testing.T) {
		t.Parallel()
		r := invoke(t, nil, "records", "show", strings.Repeat("0", 64), "--store", p.store)
		if r.code != exitRefused || !strings.Contains(r.err, "was purged after its retention") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("LooksAtNoStoreThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		r := invoke(t, nil, "records", "list", "--store", "sqlite:"+t.TempDir()+"/none.db")
		if r.code != exitUsage || !strings.Contains(r.err, "there is no such file") {
			t.Errorf("%+v", r)
		}
	})
}

func TestRecords_OfARunningNode(t *testing.T) {
	t.Parallel()
	s, client := newService(t), browser(t)
	store := sqliteStore(t)
	n := startEmbedded(t, "--config", configure(t, store, s.URL))
	ready(t, client, n.public)
	done := make(chan answer, 1)
	go func() { done <- order(t.Context(), client, n.public, "k", "hold") }()
	<-s.begun
	held := okJSON(t, "records", "list", "--key", "k", "--store", store)["records"].([]any)[0].(map[string]any)
	id := held["record"].(string)

	shown := okJSON(t, "records", "show", id, "--store", store)
	if shown["verdict"] != "running" || !strings.Contains(fmt.Sprint(shown["explanation"]), "has signed that it is running it") {
		t.Errorf("shown: %v", shown)
	}
	for _, verify := range []bool{false, true} {
		args, want := []string{"probe", n.internal, id, "--store", store}, "not_verified"
		if verify {
			args, want = append(args, "--verify"), "verified"
		}
		v := okJSON(t, args...)
		if v["signature"] != want || v["statement"].(map[string]any)["answer"] != "running" {
			t.Errorf("verify %v: %v", verify, v)
		}
	}
	close(s.release)
	if got := <-done; got.status != http.StatusCreated {
		t.Fatalf("%+v", got)
	}
	if v := okJSON(t, "probe", n.internal, id); v["statement"].(map[string]any)["answer"] != "not_running" {
		t.Errorf("after its end: %v", v)
	}
	if r := invoke(t, nil, "probe", n.internal, id, "--executor", records.ExecutorID(records.NewToken()).String()); !strings.Contains(r.out, "not_me") {
		t.Errorf("asked for somebody else: %+v", r)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	s, client := newService(t), browser(t)
	n := startEmbedded(t, "--config", configure(t, sqliteStore(t), s.URL))
	ready(t, client, n.public)

	for _, base := range []string{n.public, n.internal} {
		if v := okJSON(t, "probe", base); v["serving"] != true || v["body"].(map[string]any)["state"] != "active" {
			t.Errorf("%s: %v", base, v)
		}
	}
	if r := invoke(t, nil, "probe", n.public+"/orders"); r.code != exitFailed || !strings.Contains(r.out, "not serving") {
		t.Errorf("a path of no node: %+v", r)
	}
	if r := invoke(t, nil, "probe", "http://127.0.0.1:1"); r.code != exitFailed || !strings.Contains(r.err, "refused") {
		t.Errorf("nobody there: %+v", r)
	}
	if r := invoke(t, nil, "probe", s.URL, strings.Repeat("a", 64)); r.code != exitFailed || !strings.Contains(r.err, "internal listener?") {
		t.Errorf("no node: %+v", r)
	}
}

func TestExecutors(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)

	if v := okJSON(t, "executors", "list", "--store", p.store)["executors"].([]any)[0].(map[string]any); v["executor"] != p.executor.String() || v["state"] != "active" {
		t.Errorf("list: %v", v)
	}
	r := invoke(t, nil, "executors", "fence", p.executor.String(), "--reason", "silent", "--store", p.store)
	if r.code != exitRefused || !strings.Contains(r.err, "--force") {
		t.Errorf("fence within its lease: %+v", r)
	}
	if r := invoke(t, nil, "executors", "fence", records.ExecutorID(records.NewToken()).String(), "--reason", "silent", "--store", p.store); r.code != exitRefused {
		t.Errorf("fence of nobody: %+v", r)
	}
	v := okJSON(t, "executors", "fence", p.executor.String(), "--force", "--operator", "ada", "--reason", "its host is off", "--store", p.store)
	if v["state"] != "fenced" || v["fenced_by"] != "operator" || v["fenced_reason"] != "operator ada, by force: its host is off" {
		t.Errorf("fence --force: %v", v)
	}
	if out := ok(t, "executors", "list", "--store", p.store); strings.Contains(out, p.executor.String()) {
		t.Errorf("the fenced one is still listed:\n%s", out)
	}
	if out := ok(t, "executors", "list", "--all", "--store", p.store); !strings.Contains(out, "fenced") {
		t.Errorf("--all does not list it:\n%s", out)
	}
	if out := ok(t, "records", "show", p.ids[records.InProgress].String(), "--store", p.store); !strings.Contains(out, "Its owner is fenced. The next duplicate takes it over") {
		t.Errorf("its record:\n%s", out)
	}
}

// TestShow_NobodyElseWritesToTheTerminal: an operator's reason, and through it
// the audit and the explanation, may hold what a terminal would obey.
func TestShow_NobodyElseWritesToTheTerminal(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)
	const reason = "off \x1b[2J\nstate finalized \"INC-7\""
	const legibly = `off \x1b[2J\nstate finalized "INC-7"`
	fenced := ok(t, "executors", "fence", p.executor.String(), "--force", "--reason", reason, "--store", p.store)
	stuck := p.ids[records.InProgress].String()
	for what, out := range map[string]string{
		"executors fence": fenced,
		"executors show":  ok(t, "executors", "show", p.executor.String(), "--store", p.store),
		"records show":    ok(t, "records", "show", stuck, "--store", p.store),
		"records release": ok(t, "records", "release", stuck, "--reason", reason, "--store", p.store),
	} {
		if strings.Contains(out, "\x1b") || !strings.Contains(out, legibly) {
			t.Errorf("%s:\n%q", what, out)
		}
	}
}

func TestFleetRekey(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)
	r := invoke(t, nil, "fleet", "rekey", "probate", "copy", "--store", p.store)
	if r.code != exitRefused || !strings.Contains(r.err, "stop it first") {
		t.Errorf("with a living executor: %+v", r)
	}
	ok(t, "executors", "fence", p.executor.String(), "--force", "--reason", "it is off", "--store", p.store)
	if r := invoke(t, nil, "fleet", "rekey", "other", "copy", "--store", p.store); r.code != exitStore {
		t.Errorf("from another name: %+v", r)
	}
	if v := okJSON(t, "fleet", "rekey", "probate", "copy", "--store", p.store); v["cluster"] != "copy" {
		t.Errorf("%v", v)
	}
	if r := invoke(t, nil, "records", "list", "--store", p.store); r.code != exitStore || !strings.Contains(r.err, `"copy"`) {
		t.Errorf("under the old name: %+v", r)
	}
	ok(t, "records", "list", "--store", p.store, "--cluster", "copy")
}

func TestPurge(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)
	if v := okJSON(t, "purge", "--store", p.store); v["records"] != 0.0 || v["executors"] != 0.0 {
		t.Errorf("nothing has expired: %v", v)
	}
	if out := ok(t, "purge", "--store", p.store); out != "purged 0 records and 0 executors\n" {
		t.Errorf("%s", out)
	}
	if r := invoke(t, nil, "purge", "--store", p.store, "--reason", " "); r.code != exitUsage || !strings.Contains(r.err, "reason") {
		t.Errorf("without saying why: %+v", r)
	}
	soon := []string{"PROBATE_TAKEOVER_GRACE=1us"}
	if r := invoke(t, soon, "purge", "--operator", "ada", "--reason", "INC-5", "--store", p.store); r.out != "purged 1 records and 0 executors\n" {
		t.Errorf("the released one: %+v", r)
	}
	want := records.Event{Kind: records.EventPurged, Actor: "ada", Reason: "1 records and 0 executors: INC-5"}
	if got := p.events(t, records.EventPurged); len(got) != 1 || got[0] != want {
		t.Errorf("events %+v, want only %+v", got, want)
	}
}

// TestBlankReasons: who changes something says why, whichever way the command
// takes.
func TestBlankReasons(t *testing.T) {
	t.Parallel()
	d := newDesk(t, sqliteStore(t))
	ref := d.unknown(t, "/orders", "k")
	executor := okJSON(t, with(d.through, "executors", "list")...)["executors"].([]any)[0].(map[string]any)["executor"].(string)
	for name, way := range map[string][]string{"Straight": d.straight, "Through": d.through} {
		for _, change := range [][]string{
			{"records", "release", ref},
			{"records", "resolve", ref, "--status", "201"},
			{"records", "erase", "--realm", "", "--principal", "none"},
			{"executors", "fence", executor, "--force"},
		} {
			t.Run(name+"/"+change[1], func(t *testing.T) {
				t.Parallel()
				for _, reason := range [][]string{nil, {"--reason", " \t"}} {
					if r := invoke(t, nil, append(with(way, change...), reason...)...); r.code != exitUsage || !strings.Contains(r.err, "reason") {
						t.Errorf("%q: %+v", reason, r)
					}
				}
			})
		}
	}
	if r := invoke(t, nil, with(d.through, "records", "reconcile", ref, "--reason", "")...); r.code != exitUsage || !strings.Contains(r.err, "reason") {
		t.Errorf("reconcile: %+v", r)
	}
}

// newestSchema is the number of the last migration, as JSON has it.
func newestSchema(t *testing.T) float64 {
	t.Helper()
	files, err := filepath.Glob("../../migrations/*.up.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	return float64(len(files))
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	store := sqliteStore(t)
	if r := invoke(t, nil, "migrate", "status", "--store", store); r.code != exitUsage {
		t.Errorf("status of no file: %+v", r)
	}
	if v := okJSON(t, "migrate", "up", "--store", store); v["schema"] != newestSchema(t) || v["cluster"] != "probate" {
		t.Errorf("up: %v", v)
	}
	if v := okJSON(t, "migrate", "status", "--store", store); v["schema"] != v["binary"] {
		t.Errorf("status: %v", v)
	}
	if out := ok(t, "migrate", "version", "--store", store); out != fmt.Sprintf("%v\n", newestSchema(t)) {
		t.Errorf("version: %q", out)
	}
	if r := invoke(t, nil, "migrate", "down", "--yes", "--store", store); r.code != exitRefused {
		t.Errorf("down: %+v", r)
	}
}

func TestBench(t *testing.T) {
	t.Parallel()

	t.Run("MeasuresANodeOfItsOwn", func(t *testing.T) {
		t.Parallel()
		v := okJSON(t, "bench", "--duration", "300ms", "--concurrency", "4", "--repeat", "50")
		statements := v["statements_per_request"].(map[string]any)
		answers := v["answers"].(map[string]any)
		if v["failed"] != 0.0 || v["requests"].(float64) < 2 || answers["201 executed"] == nil || answers["201 replayed"] == nil {
			t.Errorf("%v", v)
		}
		if r := statements["reserve"].(float64); r <= 0 || r > 1 {
			t.Errorf("%v reserves a request, with half of them repeats", r)
		}
	})

	t.Run("MeasuresARunningNode", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		n := startEmbedded(t, "--config", configure(t, sqliteStore(t), s.URL))
		ready(t, client, n.public)
		out := ok(t, "bench", "--duration", "200ms", "--concurrency", "2", "--url", n.public+"/orders", "--internal", n.internal, "--header", "X-A: b")
		if !strings.Contains(out, "answers 201 executed: ") || !strings.Contains(out, "statements a request: ") || !strings.Contains(out, "reserve a request: ") {
			t.Errorf("%s", out)
		}
		r := invoke(t, nil, "bench", "--duration", "100ms", "--concurrency", "1", "--url", n.public+"/nothing")
		if r.code != exitFailed || !strings.Contains(r.out, "answers 404: ") {
			t.Errorf("%+v", r)
		}
	})
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	sorted := durations(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	for p, want := range map[float64]float64{50: 5, 90: 9, 99: 10, 100: 10, 1: 1} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
