package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/probate-dev/probate/records"
)

// actor is a node of a demo: a process of this same program.
type actor struct {
	name             string
	public, internal string // base URLs, once it listens
	story            *story

	cmd    *exec.Cmd
	life   io.Closer // its standard input
	gone   chan struct{}
	killed bool // by the demo

	mu     sync.Mutex
	lines  []string // the last ones
	listen map[string]any
}

// demoNodeConfig is what each node is told, besides its store and its name.
const demoNodeConfig = `
cluster: demo
slot: %s
listen: 127.0.0.1:0
internal: {listen: "127.0.0.1:0", allow: [127.0.0.0/8]}
log: {format: json}
`

// demoRouteConfig is what leads to the ledger.
const demoRouteConfig = `routes:
  - match: {methods: [POST], path: "/orders/{id}/payments"}
    upstream: %[1]s
    operation: create-payment
    resource: "{id}"
    required: true
    principal: none
    retention: 1m
    unknown_retention: 1m
    reconcile: {url: %[1]s/reconcile}
`

// start starts a node.
func (s *story) start(ctx context.Context, name string) (*actor, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.folder, name+".yaml")
	config := fmt.Appendf(nil, demoNodeConfig, name)
	if s.flow != nil {
		config = s.flow.appendConfig(config)
	} else {
		config = fmt.Appendf(config, demoRouteConfig, s.ledger.url)
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	a := &actor{name: name, story: s, gone: make(chan struct{})}
	// Its end is for strike and kill: what ends this context must not end it
	// before it was told to leave.
	a.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--config", file)
	a.cmd.Dir, a.cmd.Env, a.cmd.SysProcAttr = s.folder, s.environ(), childAttributes()
	if a.life, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	log, err := a.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(a.gone)
		a.read(log)
		_ = a.cmd.Wait() // how it ended shows in its log
	}()
	return a, nil
}

// environ is this process' environment without settings of a node, and with
// the demo's store.
func (s *story) environ() []string {
	c := defaultConfig()
	ours := []string{"DATABASE_URL", "PROBATE_CONFIG"}
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		ours = append(ours, environmentName(l.path))
	}
	environ := slices.DeleteFunc(slices.Clone(s.env.process.environ), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(ours, name)
	})
	return append(environ, "PROBATE_STORE="+s.config.Store)
}

// read follows the node's log to its end.
func (a *actor) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry map[string]any
		_ = json.Unmarshal(lines.Bytes(), &entry) // what is no JSON has no message
		a.mu.Lock()
		a.lines = append(a.lines[max(0, len(a.lines)-10):], lines.Text())
		if entry["msg"] == "listening" {
			a.listen = entry
		}
		a.mu.Unlock()
		a.story.hear(a.name, entry)
	}
	_, _ = io.Copy(io.Discard, log) // a node that cannot log would stand still
}

// hear tells what a node has logged, if it is part of the story.
func (s *story) hear(who string, entry map[string]any) {
	word := func(name string) string {
		if v, ok := entry[name]; ok {
			return fmt.Sprint(v)
		}
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, word("time"))
	if err != nil {
		return
	}
	switch word("msg") {
	case "suspicion":
		s.tell(at, who, "asked %s: %s. %s: %s", s.withSlots(word("suspect")), word("verdict"), word("outcome"), s.withSlots(word("reason")))
	case "fenced":
		s.tell(at, who, "fences %s: from now on nothing that it writes counts", s.withSlots(word("executor")))
	case "fence refused":
		s.tell(at, who, "may not fence %s: %s", s.withSlots(word("suspect")), word("error"))
	case "took over":
		s.tell(at, who, "takes the record over, at epoch %s", number(entry["epoch"]))
	}
}

// number writes what JSON has read as a floating-point number.
func number(v any) string {
	f, _ := v.(float64)
	return strconv.FormatInt(int64(f), 10)
}

// name notes whose executor it is.
func (s *story) name(id records.ExecutorID, slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[id] = slot
}

// withSlots is a text with the nodes' names for their executors' ids.
func (s *story) withSlots(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, slot := range s.slots {
		text = strings.ReplaceAll(text, id.String(), slot)
	}
	return text
}

// awaitListening waits until the node has said where it listens.
func (a *actor) awaitListening(ctx context.Context) error {
	err := a.story.await(ctx, a.name+" listens", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.listen != nil
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.public, a.internal = fmt.Sprintf("http://%v", a.listen["public"]), fmt.Sprintf("http://%v", a.listen["internal"])
	return nil
}

// waiting is how many duplicates wait at the node.
func (a *actor) waiting(ctx context.Context) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.internal+"/metrics", http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if count, found := strings.CutPrefix(lines.Text(), "probate_waiters "); found {
			n, _ := strconv.Atoi(count)
			return n
		}
	}
	return 0
}

func (a *actor) pid() int { return a.cmd.Process.Pid }

func (a *actor) ended() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// kill ends the node as a crash does.
func (a *actor) kill() {
	a.killed = true
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.gone
	_ = a.life.Close()
}

// term asks the node to leave.
func (a *actor) term() {
	if !a.ended() {
		_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
}

// awaitEnd waits until the node has left, and kills one that does not.
func (a *actor) awaitEnd() error {
	defer a.life.Close()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-a.gone:
		return nil
	case <-timer.C:
		a.kill()
		return errors.New(a.name + " did not leave and was killed")
	}
}

func (a *actor) lastWords() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.lines)
}
