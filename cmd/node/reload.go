package main

import (
	"context"
	"reflect"

	"github.com/probate-dev/probate/api"
)

// newGateway builds the gateway that a configuration describes.
func (n *node) newGateway(ctx context.Context, c Config) (*api.API, error) {
	config := c.gateway()
	if err := n.queries.serve(ctx, n, c, config.Routes); err != nil {
		return nil, err
	}
	config.Coordinator = n.tracer.around(n.takeover)
	config.Logger, config.Events = n.log, n.metrics
	return api.New(config) //nolint:contextcheck // each request brings its own
}

// reload reads the configuration again and exchanges the routes and operators, all or none:
// requests that have begun end on the routes they began on. A fault keeps the
// old ones.
func (n *node) reload(ctx context.Context, s settings) {
	c, err := readConfig(s)
	if err != nil {
		for _, fault := range faultsOf(err) {
			n.log.ErrorContext(ctx, "configuration not reloaded", "fault", fault.Error())
		}
		return
	}
	gateway, err := n.newGateway(ctx, c)
	if err != nil {
		n.log.ErrorContext(ctx, "configuration not reloaded", "fault", err.Error())
		return
	}
	operators, err := c.Operators.load()
	if err != nil {
		n.log.ErrorContext(ctx, "configuration not reloaded", "fault", err.Error())
		return
	}
	n.operators.Store(operators)
	n.exchangeKeys(ctx, c)
	old := n.gateway.Swap(gateway)
	_ = old.Close() // idle connections only; it has no error
	n.log.InfoContext(ctx, "routes reloaded", "routes", len(c.Routes))
	n.announceRoutes(ctx, c)
	for _, path := range needRestart(n.started, c) {
		n.log.WarnContext(ctx, "setting needs a restart", "setting", path)
	}
}

// faultsOf are the single faults of a configuration.
func faultsOf(err error) []error {
	if c, ok := err.(configError); ok { //nolint:errorlint // as readConfig returned it
		if u, ok := c.error.(interface{ Unwrap() error }); ok {
			return split(u.Unwrap())
		}
	}
	return []error{err}
}

// needRestart lists what differs, and is read only at the start.
func needRestart(before, after Config) []string {
	old, changed := leaves(reflect.ValueOf(&before).Elem(), ""), leaves(reflect.ValueOf(&after).Elem(), "")
	var paths []string
	for i, l := range old {
		switch l.path {
		case "pass_through", "problem_types", "redact", "seal.keys_file", "wait.default", "wait.max", "operators.tokens_file":
			continue
		}
		if !reflect.DeepEqual(l.value.Interface(), changed[i].value.Interface()) {
			paths = append(paths, l.path)
		}
	}
	return paths
}
