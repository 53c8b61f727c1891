//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestOperators is who may do what over /v1, and how they are let in.
func TestOperators(t *testing.T) {
	t.Parallel()
	d := newDesk(t, sqliteStore(t))
	ref := d.unknown(t, "/orders", "k")
	asEve := []string{"--node", d.node.internal, "--token", d.eve}

	t.Run("ReadWithTheRoleRead", func(t *testing.T) {
		executor := okJSON(t, with(asEve, "executors", "list", "--all")...)["executors"].([]any)[0].(map[string]any)["executor"].(string)
		if out := ok(t, with(asEve, "executors", "show", executor)...); !strings.Contains(out, "It serves") || !strings.Contains(out, "number ") {
			t.Errorf("%s", out)
		}
		for _, change := range [][]string{
			{"records", "release", ref, "--reason", "r"},
			{"records", "reconcile", ref, "--reason", "r"},
			{"records", "resolve", ref, "--reason", "r", "--status", "201"},
			{"records", "erase", "--realm", "", "--principal", "none", "--reason", "r"},
			{"executors", "fence", executor, "--reason", "r", "--force"},
		} {
			if r := invoke(t, nil, with(asEve, change...)...); r.code != exitRefused || !strings.Contains(r.err, "status 403") {
				t.Errorf("%s: %+v", change, r)
			}
		}
		if r := invoke(t, nil, with(d.through, "executors", "fence", executor, "--reason", "r")...); r.code != exitRefused || !strings.Contains(r.err, "lease") {
			t.Errorf("within its lease: %+v", r)
		}
	})

	t.Run("AreNotLetInWithoutTheirToken", func(t *testing.T) {
		list := []string{"records", "list", "--node", d.node.internal}
		if r := invoke(t, nil, list...); r.code != exitUsage || !strings.Contains(r.err, "PROBATE_OPERATOR_TOKEN") {
			t.Errorf("without one: %+v", r)
		}
		if r := invoke(t, []string{"PROBATE_OPERATOR_TOKEN=guessed"}, list...); r.code != exitRefused || !strings.Contains(r.err, "status 401") {
			t.Errorf("with another: %+v", r)
		}
		if r := invoke(t, []string{"PROBATE_OPERATOR_TOKEN=" + d.eve}, list...); r.code != exitDone || !strings.Contains(r.out, ref) {
			t.Errorf("from the environment: %+v", r)
		}
		if r := invoke(t, nil, "records", "list", "--node", d.URL, "--token", "x"); r.code == exitDone {
			t.Errorf("what is no node: %+v", r)
		}
		if r := invoke(t, nil, "records", "list", "--node", "nowhere", "--token", "x"); r.code != exitUsage {
			t.Errorf("what is no URL: %+v", r)
		}
		if r := invoke(t, nil, "records", "list", "--node", d.node.public, "--token", d.eve); r.code != exitRefused || !strings.Contains(r.err, "internal listener") {
			t.Errorf("the public listener: %+v", r)
		}
	})

	t.Run("AreExchangedBySIGHUP", func(t *testing.T) {
		made := okJSON(t, "operators", "token", "bob")
		text, err := os.ReadFile(d.operators)
		if err != nil {
			t.Fatal(err)
		}
		asBob := []string{"records", "list", "--node", d.node.internal, "--token", made["token"].(string)}
		if r := invoke(t, nil, asBob...); r.code != exitRefused {
			t.Errorf("before: %+v", r)
		}
		hangUp := func(text string) {
			t.Helper()
			if err := os.WriteFile(d.operators, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d.node.signals <- syscall.SIGHUP
		}
		hangUp(string(text) + "read carol sha256:short\n")
		await(t, "the fault is logged", func() bool {
			faults := d.node.log.all("configuration not reloaded")
			return len(faults) > 0 && strings.Contains(fmt.Sprint(faults[0]["fault"]), "line 3: want sha256:")
		})
		if r := invoke(t, nil, with(asEve, "records", "list")...); r.code != exitDone {
			t.Errorf("with a fault in the file the old operators are let in no more: %+v", r)
		}
		hangUp(made["line"].(string))
		await(t, "bob is let in", func() bool { return invoke(t, nil, asBob...).code == exitDone })
		if r := invoke(t, nil, with(asEve, "records", "list")...); r.code != exitRefused {
			t.Errorf("eve, whose line is gone: %+v", r)
		}
	})

	t.Run("LeaveNoTokenInTheLog", func(t *testing.T) {
		log := d.node.log.text()
		for _, token := range []string{d.ada, d.eve, "guessed"} {
			if strings.Contains(log, token) {
				t.Errorf("%s is in the log", token)
			}
		}
		if len(d.node.log.all("operator not let in")) == 0 {
			t.Error("who was not let in is not in the log")
		}
	})
}

func TestOperators_InTheConfiguration(t *testing.T) {
	t.Parallel()

	t.Run("EveryFaultIsReportedWithItsLine", func(t *testing.T) {
		t.Parallel()
		folder := t.TempDir()
		if err := os.WriteFile(folder+"/tokens", []byte("read eve\n\nadmin ada sha256:00\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder+"/probate.yaml", []byte("operators:\n  tokens_file: "+folder+"/tokens\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke(t, nil, "serve", "--check", "--config", folder+"/probate.yaml")
		for _, part := range []string{"probate.yaml:2: operators.tokens_file: ", "tokens: line 1: 2 words", "tokens: line 3: the role"} {
			if r.code != exitUsage || !strings.Contains(r.err, part) {
				t.Errorf("no %q in %+v", part, r)
			}
		}
		if r := invoke(t, nil, "serve", "--check", "--operators.tokens-file", folder+"/none"); r.code != exitUsage || !strings.Contains(r.err, "no such file") {
			t.Errorf("a file that is not there: %+v", r)
		}
		if r := invoke(t, nil, "operators", "token", "two words"); r.code != exitUsage {
			t.Errorf("a name that no line can have: %+v", r)
		}
	})

	t.Run("TheDoctorSaysWhereTokensTravelInTheClear", func(t *testing.T) {
		t.Parallel()
		file, _, _ := operatorsFile(t)
		for listen, want := range map[string]string{"127.0.0.1:0": healthy, "192.0.2.7:8081": doubtful} {
			r := invoke(t, nil, "doctor", "-o", "json", "--store", sqliteStore(t), "--operators.tokens-file", file, "--internal.listen", listen)
			var v map[string]any
			if err := json.Unmarshal([]byte(r.out), &v); err != nil {
				t.Fatalf("%v: %+v", err, r)
			}
			if got := checksOf(t, v)["operators"]; got != want {
				t.Errorf("%s: %q, want %q", listen, got, want)
			}
		}
	})

	t.Run("WithoutAFileThereIsNoOperatorAPI", func(t *testing.T) {
		t.Parallel()
		client := browser(t)
		n := startEmbedded(t, "--config", configure(t, sqliteStore(t), "http://127.0.0.1:1"))
		for _, path := range []string{"/v1/records", "/v1/nothing"} {
			if status, body := get(t.Context(), client, n.internal+path); status != http.StatusNotFound || !strings.Contains(body, "not_found") {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	})
}
