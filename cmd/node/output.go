package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// colour is an SGR parameter; "" leaves text as it is.
type colour string

const (
	plain  colour = ""
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	bold   colour = "1"
)

// paint colours text, if colours are wanted.
func (e *env) paint(c colour, text string) string {
	if !e.colours || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// isTerminal reports whether a person looks at w.
func (*env) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// text is a result for a person. The first error of writing it is kept.
type text struct {
	w   io.Writer
	err error
}

func (t *text) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

// say tells a person, on standard error, something besides the result.
func (e *env) say(format string, args ...any) {
	_, _ = fmt.Fprintf(e.err, format, args...) // nobody else could be told
}

// show writes a result: v as JSON, or what write writes for a person.
func (e *env) show(v any, write func(w *text)) error {
	if !e.json {
		t := &text{w: e.out}
		write(t)
		return t.err
	}
	enc := json.NewEncoder(e.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// cell is a word of a table.
type cell struct {
	text   string
	colour colour
}

func words(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, t := range texts {
		cells[i].text = t
	}
	return cells
}

// table writes rows under a head, in columns as wide as they must be.
func (e *env) table(w *text, head []string, rows [][]cell) {
	titles := words(head...)
	for i := range titles {
		titles[i].colour = bold
	}
	rows = append([][]cell{titles}, rows...)
	widths := make([]int, len(head))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(e.paint(c.colour, c.text))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		w.printf("%s\n", strings.TrimRight(line.String(), " "))
	}
}

// harmless is what a client sent, made fit for a terminal: as it is if it is
// all printable, else quoted.
func harmless(s string) string {
	if quoted := strconv.Quote(s); s == "" || quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// legible is a text in which others may have had a word, such as an error or an
// operator's reason, made fit for a terminal: what is not printable is escaped.
func legible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// age is a duration as a person says it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second / 10).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
