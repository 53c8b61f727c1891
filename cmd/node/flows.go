package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
)

type flowsCmd struct {
	List      flowsListCmd      `cmd:"" help:"List data flows, from the store."`
	Show      flowsShowCmd      `cmd:"" help:"Show one data flow, and who moves it."`
	Terminate flowsTerminateCmd `cmd:"" help:"End a data flow, wherever its bytes are moved."`
}

type flowsListCmd struct {
	State    string       `help:"Only in this state: ${enum}." enum:",PREPARING,PREPARED,STARTING,STARTED,SUSPENDED,COMPLETED,TERMINATED" default:""`
	After    string       `help:"Go on after this flow." placeholder:"ID"`
	Limit    int          `help:"How many at most." default:"50"`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsListCmd) Help() string {
	return `Flows come in order of their ids; where there are more, the way to go on is printed.

Examples:

  probate flows list --state STARTED
  probate flows list -o json`
}

// storedFlows are the flows of a store, or what is missing if it keeps none.
func storedFlows(ctx context.Context, s records.Store) (records.Flows, error) {
	flows, ok := flowsOf(s)
	if !ok {
		return nil, errors.New("this store keeps no data flows")
	}
	fleet, err := s.Fleet(ctx)
	if err == nil && fleet.Schema < flowsSchema {
		err = fmt.Errorf("%w: data flows need schema %d, the store is at %d: run the migrations", records.ErrSchemaTooOld, flowsSchema, fleet.Schema)
	}
	return flows, err
}

// Run implements the subcommand.
func (c *flowsListCmd) Run(ctx context.Context, e *env) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return usageError{fmt.Errorf("--limit %d: want 1 to 1000", c.Limit)}
	}
	var result api.FlowList
	err := e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodGet, "/v1/flows", c.query(), nil, &result)
		},
		func(_ Config, s records.Store) error {
			flows, err := storedFlows(ctx, s)
			if err == nil {
				result, err = api.ListFlows(ctx, flows, records.FlowFilter{State: records.FlowState(c.State), After: c.After, Limit: c.Limit})
			}
			return err
		})
	if err != nil {
		return err
	}
	return e.show(result, func(w *text) {
		rows := make([][]cell, 0, len(result.Flows))
		for _, v := range result.Flows {
			row := words(harmless(v.Flow), v.State, harmless(v.Dataset), fmt.Sprint(v.Bytes), fmt.Sprint(v.Attempts), v.Executor, age(time.Since(v.CreatedAt)))
			row[1].colour = flowColour(v.State)
			rows = append(rows, row)
		}
		e.table(w, []string{"FLOW", "STATE", "DATASET", "BYTES", "ATTEMPTS", "EXECUTOR", "AGE"}, rows)
		if result.More {
			w.printf("more: --after %s\n", harmless(result.Next))
		}
	})
}

// query is the same for a node.
func (c *flowsListCmd) query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(c.Limit)}}
	for name, word := range map[string]string{"state": c.State, "after": c.After} {
		if word != "" {
			q.Set(name, word)
		}
	}
	return q
}

func flowColour(state string) colour {
	switch records.FlowState(state) {
	case records.FlowCompleted:
		return green
	case records.FlowTerminated:
		return red
	case records.FlowStarting, records.FlowStarted, records.FlowSuspended:
		return yellow
	case records.FlowPreparing, records.FlowPrepared:
	}
	return plain
}

type flowsShowCmd struct {
	Flow     string       `arg:"" help:"The flow's id: the processId of its messages."`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsShowCmd) Help() string {
	return `Example:

  probate flows show tp-1`
}

// Run implements the subcommand.
func (c *flowsShowCmd) Run(ctx context.Context, e *env) error {
	var v api.FlowView
	err := e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error { return node.call(ctx, http.MethodGet, flowPath(c.Flow), nil, nil, &v) },
		func(_ Config, s records.Store) error {
			flows, err := storedFlows(ctx, s)
			if err == nil {
				v, err = api.ShowFlow(ctx, flows, c.Flow)
			}
			return err
		})
	if err != nil {
		return fmt.Errorf("flow %q: %w", c.Flow, err)
	}
	return e.showFlow(v)
}

// flowPath is where a node tells of a flow, whatever its id.
func flowPath(id string) string { return "/v1/flows/" + url.PathEscape(id) }

func (e *env) showFlow(v api.FlowView) error {
	return e.show(v, func(w *text) {
		line := func(name, value string, c colour) {
			if value != "" {
				w.printf("%-12s %s\n", name, e.paint(c, value))
			}
		}
		line("flow", harmless(v.Flow), plain)
		line("state", v.State, flowColour(v.State))
		line("wanted", v.Wanted, yellow)
		line("reason", harmless(v.Reason), plain)
		line("dataset", harmless(v.Dataset), plain)
		line("profile", harmless(v.Profile), plain)
		line("record", v.Record, plain)
		line("attempts", fmt.Sprint(v.Attempts), plain)
		line("executor", v.Executor, plain)
		line("url", v.ExecutorURL, plain)
		line("bytes", fmt.Sprint(v.Bytes), plain)
		line("sha256", v.SHA256, plain)
		line("age", age(time.Since(v.CreatedAt)), plain)
		line("undelivered", harmless(v.Undelivered), yellow)
	})
}

type flowsTerminateCmd struct {
	Flow     string        `arg:"" help:"The flow's id: the processId of its messages."`
	Reason   string        `required:"" help:"Why; the control plane is told."`
	Wait     time.Duration `help:"How long to wait for the bytes to stop, straight on the store." default:"30s"`
	Operator string        `help:"Who says so, straight on the store. Default: $$USER." placeholder:"NAME"`
	Remote   Remote        `embed:""`
	Settings kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsTerminateCmd) Help() string {
	return `What is wanted is written to the store. The node that moves the bytes sees it when it writes its progress, and stops; if
that node is dead, another takes the flow over in order to end it. With --node the node that moves the bytes is told at once.
The control plane is told by an errored callback, with the reason and without who gave it.

Examples:

  probate flows terminate tp-1 --reason "wrong dataset"
  probate flows terminate tp-1 --reason "wrong dataset" --node https://10.0.0.7:8081`
}

// Run implements the subcommand.
func (c *flowsTerminateCmd) Run(ctx context.Context, e *env) error {
	var now api.FlowView
	err := e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodPost, flowPath(c.Flow)+"/terminate", nil, map[string]string{"reason": c.Reason}, &now)
		},
		func(config Config, s records.Store) error {
			flows, err := storedFlows(ctx, s)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, errNotStopped)
			defer cancel()
			done, err := api.TerminateFlow(ctx, config.adminFlows(flows), s, c.Flow, e.operator(c.Operator), c.Reason)
			now = done.Now
			return err
		})
	if err != nil {
		return fmt.Errorf("flow %q: %w", c.Flow, err)
	}
	if err := e.showFlow(now); err != nil {
		return err
	}
	if now.State != string(records.FlowTerminated) {
		return fmt.Errorf("flow %q: %w", c.Flow, errNotStopped)
	}
	return nil
}

// errNotStopped: it will be, but nobody has said so yet.
var errNotStopped = errors.New("that it is to end is written down, and it has not ended yet")

// adminFlows are what this node's operator API serves of flows: those of its
// store, also where it moves no data itself.
func (n *node) adminFlows() *api.AdminFlows {
	if n.flows == nil {
		return nil
	}
	f := n.config.adminFlows(n.flows)
	if n.data != nil {
		f.Terminate = n.data.Terminate
	}
	return &f
}

// adminFlows are a store's flows without a data plane to end them.
func (c Config) adminFlows(flows records.Flows) api.AdminFlows {
	return api.AdminFlows{Store: flows, Ended: func(f records.Flow, reason string) *records.NewCallback {
		return transfer.Ended(f, c.Dataflows.ControlPlane.URL, reason)
	}}
}
