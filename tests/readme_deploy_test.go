//go:build unix

package tests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkHAProxy: what the README shows is part of what runs under load in
// tests/compose.
func (r readme) checkHAProxy(t *testing.T) {
	whole := read(t, "deploy/haproxy.cfg")
	for line := range strings.Lines(r.in(t, "Behind a balancer", "haproxy", 1)[0]) {
		if !strings.Contains(whole, line) {
			t.Errorf("deploy/haproxy.cfg lacks %q", line)
		}
	}
}

// directive is one of nginx's, with its block if it has one.
type directive struct {
	words []string
	block []directive
}

// parseNginx reads a configuration by the grammar of nginx: words, then a
// semicolon or a block in braces; a comment ends with its line.
func parseNginx(text string) ([]directive, error) {
	var bare strings.Builder
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, " #")
		bare.WriteString(before + "\n")
	}
	spaced := strings.NewReplacer(";", " ; ", "{", " { ", "}", " } ").Replace(bare.String())
	found, rest, err := parseDirectives(strings.Fields(spaced))
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q closes nothing", rest)
	}
	return found, err
}

// parseDirectives reads up to a closing brace or the end.
func parseDirectives(words []string) (found []directive, rest []string, err error) {
	for len(words) > 0 && words[0] != "}" {
		end := slices.IndexFunc(words, func(w string) bool { return w == ";" || w == "{" || w == "}" })
		if end < 1 || words[end] == "}" {
			return nil, nil, fmt.Errorf("a directive does not end: %q", words)
		}
		d, opens := directive{words: words[:end]}, words[end] == "{"
		words = words[end+1:]
		if opens {
			if d.block, words, err = parseDirectives(words); err != nil {
				return nil, nil, err
			}
			if len(words) == 0 {
				return nil, nil, fmt.Errorf("%q is not closed", d.words)
			}
			words = words[1:]
		}
		found = append(found, d)
	}
	return found, words, nil
}

// all lists every directive of a name, at any depth.
func all(in []directive, name string) []directive {
	var found []directive
	for _, d := range in {
		if d.words[0] == name {
			found = append(found, d)
		}
		found = append(found, all(d.block, name)...)
	}
	return found
}

// checkNginx: it parses, asks the nodes where they listen, and sends again
// only what carries a key.
func (r readme) checkNginx(t *testing.T) {
	config, err := parseNginx(r.in(t, "Behind a balancer", "nginx", 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"server { listen 80; ", "listen 80", "a { b }", "listen 80; }"} {
		if _, err := parseNginx(broken); err == nil {
			t.Errorf("%q is taken for a configuration", broken)
		}
	}
	known := []string{
		"upstream", "server", "listen", "proxy_http_version", "proxy_set_header", "proxy_connect_timeout", "proxy_read_timeout",
		"location", "proxy_pass", "proxy_next_upstream",
	}
	var check func(in []directive)
	check = func(in []directive) {
		for _, d := range in {
			if !slices.Contains(known, d.words[0]) {
				t.Errorf("nginx has no %q, or the README did not need it", d.words[0])
			}
			check(d.block)
		}
	}
	check(config)
	keys := example(t)
	port, _ := keys["listen"].(string)
	nodes := all(all(config, "upstream")[0].block, "server")
	for _, n := range nodes {
		if !strings.HasSuffix(n.words[1], port) {
			t.Errorf("%q: a node listens on %s", n.words, port)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("%d nodes", len(nodes))
	}
	longest, _ := setting(keys, "wait.max")
	if waits := all(config, "proxy_read_timeout"); len(waits) != 1 || duration(t, waits[0].words[1]) <= duration(t, longest) {
		t.Errorf("proxy_read_timeout %v, and a duplicate may wait for %v", waits, longest)
	}
	for _, l := range all(config, "location") {
		again, keyed := all(l.block, "proxy_next_upstream"), strings.Contains(strings.Join(l.words, " "), "/payments")
		if sendsAgain := len(again) > 0 && slices.Contains(again[0].words, "non_idempotent"); sendsAgain != keyed {
			t.Errorf("%q: sends again %v, keyed %v", l.words, sendsAgain, keyed)
		}
	}
}

func duration(t *testing.T, v any) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(fmt.Sprint(v))
	if err != nil {
		t.Fatal(err)
	}
	return d
}
