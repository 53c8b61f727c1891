package main

import (
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Which shell: ${enum}."`
}

// Help is shown below the flags.
func (completionCmd) Help() string {
	return `Examples:

  source <(probate completion bash)
  probate completion zsh > "${fpath[1]}/_probate"
  probate completion fish > ~/.config/fish/completions/probate.fish`
}

// The scripts ask this program, so they never grow old.
var completionScripts = map[string]string{
	"bash": `_probate() {
	local IFS=$'\n'
	COMPREPLY=($(probate __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _probate probate
`,
	"zsh": `#compdef probate
_probate() {
	local -a candidates
	candidates=("${(@f)$(probate __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "$candidates" ]]; then compadd -a candidates; else _files; fi
}
compdef _probate probate
`,
	"fish": `complete -c probate -f -a '(probate __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
}

// Run implements the subcommand.
func (c *completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, completionScripts[c.Shell])
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:""`
}

// Run implements the subcommand: it prints what the last word may become.
func (c *completeCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, strings.Join(append(candidates(e.model.Node, c.Words), ""), "\n"))
	return err
}

// candidates are what the last of the words may become, in order.
func candidates(node *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	var pending *kong.Flag // takes the next word
	for _, word := range words[:len(words)-1] {
		switch {
		case pending != nil:
			pending = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(node, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				pending = f
			}
		default:
			if child := childOf(node, word); child != nil {
				node = child
			}
		}
	}
	last := words[len(words)-1]
	var all []string
	switch {
	case pending != nil && pending.Enum != "":
		all = strings.Split(pending.Enum, ",")
	case pending != nil:
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				all = append(all, "--"+f.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
		for _, p := range node.Positional {
			if p.Enum != "" {
				all = append(all, strings.Split(p.Enum, ",")...)
			}
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	word, _, _ = strings.Cut(word, "=")
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}
