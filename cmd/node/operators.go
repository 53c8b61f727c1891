package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

// load reads the tokens file. Nil: there is none.
func (o Operators) load() (*api.Operators, error) {
	if o.TokensFile == "" {
		return nil, nil //nolint:nilnil // no operator API is a configuration, too
	}
	text, err := os.ReadFile(o.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	operators, err := api.ParseOperators(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.TokensFile, err)
	}
	return operators, nil
}

// checkOperators reports every line of the tokens file that cannot be used.
func (c Config) checkOperators(s *settings) {
	const path = "operators.tokens_file"
	_, err := c.Operators.load()
	if err == nil {
		return
	}
	for _, fault := range split(errors.Unwrap(err)) {
		s.fault(path, "%s: %v", c.Operators.TokensFile, fault)
	}
}

// operators looks at how operators come in.
func (x *examination) operators() {
	host, _, _ := net.SplitHostPort(x.config.Internal.Listen) // it was checked
	switch file := x.config.Operators.TokensFile; {
	case file == "":
		x.add("operators", healthy, "", "nobody has a token, so there is no operator API")
	case x.config.Internal.TLS.Cert == "" && !isLoopback(host):
		x.add("operators", doubtful, "set internal.tls", "their tokens reach %s in the clear", x.config.Internal.Listen)
	default:
		x.add("operators", healthy, "", "let in by %s", file)
	}
}

// newAdmin builds the operator API of this node.
func (n *node) newAdmin() *api.Admin {
	return api.NewAdmin(api.AdminConfig{
		Store: n.store, Node: n.takeover, Operators: n.operators.Load, Takeovers: n.config.Takeover.Takeovers,
		ProblemTypes: n.config.ProblemTypes, Logger: n.log, Flows: n.adminFlows(),
		Ask: func(ctx context.Context, h records.Held) (api.Sight, error) {
			return sightOf(n.asker.Probe(ctx, h.Executor, h.Record.ID, h.Record.Epoch)), nil
		},
	})
}

type operatorsCmd struct {
	Token operatorsTokenCmd `cmd:"" help:"Make a bearer token for an operator."`
}

type operatorsTokenCmd struct {
	Name string `arg:"" help:"The operator's name, as audit and log will have it."`
	Role string `enum:"read,operate" default:"read" help:"What the token lets its owner do: ${enum}."`
}

// Help is shown below the flags.
func (operatorsTokenCmd) Help() string {
	return `The token is shown here and kept nowhere; the line is for the file that operators.tokens_file of the nodes names, and holds
only the token's SHA-256. A node reads the file when it starts and at SIGHUP. To take a token back, delete its line.

Examples:

  probate operators token ada --role operate
  probate operators token dashboard -o json`
}

// Run implements the subcommand.
func (c *operatorsTokenCmd) Run(e *env) error {
	token, line, err := api.NewOperator(c.Name, api.Role(c.Role))
	if err != nil {
		return usageError{err}
	}
	return e.show(map[string]string{"token": token, "line": line}, func(w *text) {
		w.printf("token, for %s alone:\n  %s\nline, for operators.tokens_file:\n  %s\n", c.Name, token, line)
	})
}
