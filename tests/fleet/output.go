//go:build unix

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Output keeps what a process wrote, line by line. It reads lines that
// log/slog wrote as JSON.
type Output struct {
	mu      sync.Mutex
	partial []byte
	lines   []Line
}

// Line is one line of output.
type Line struct {
	Text   string
	fields map[string]any // of a line in JSON
}

// Write appends output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, rest, whole := bytes.Cut(o.partial, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l := Line{Text: string(line)}
		if json.Unmarshal(line, &l.fields) != nil {
			l.fields = nil
		}
		o.lines = append(o.lines, l)
		o.partial = bytes.Clone(rest)
	}
}

// Said returns the lines with the message and, of these, those whose fields
// have the values: said("fenced", "executor", id).
func (o *Output) Said(message string, pairs ...string) []Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []Line
lines:
	for _, l := range o.lines {
		if l.Field("msg") != message {
			continue
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if l.Field(pairs[i]) != pairs[i+1] {
				continue lines
			}
		}
		found = append(found, l)
	}
	return found
}

// Has reports whether any line contains the text.
func (o *Output) Has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.lines, func(l Line) bool { return strings.Contains(l.Text, text) })
}

// Tail is the end of the output.
func (o *Output) Tail(lines int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for _, l := range o.lines[max(0, len(o.lines)-lines):] {
		b.WriteString(l.Text + "\n")
	}
	return b.String() + string(o.partial)
}

// Field is the text of a field; empty if the line has none of the name.
func (l Line) Field(name string) string {
	v, ok := l.fields[name]
	if !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// At is when the line was written, by the clock of the machine, which all
// processes of a test share.
func (l Line) At() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, l.Field("time"))
	return at
}
