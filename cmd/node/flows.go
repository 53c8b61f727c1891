package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
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
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsListCmd) Help() string {
	return `Flows come in order of their ids; where there are more, the way to go on is printed.

Examples:

  probate flows list --state STARTED
  probate flows list -o json`
}

// flowView is a flow as JSON. What lets somebody in at its ends is not in it.
type flowView struct {
	Flow        string     `json:"flow"`
	Record      string     `json:"record"`
	State       string     `json:"state"`
	Wanted      string     `json:"wanted,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Profile     string     `json:"profile"`
	Dataset     string     `json:"dataset"`
	Attempts    int        `json:"attempts"`
	Executor    string     `json:"executor,omitempty"`
	ExecutorURL string     `json:"executor_url,omitempty"`
	Epoch       int64      `json:"epoch,omitempty"`
	Bytes       int64      `json:"bytes"`
	TotalBytes  int64      `json:"total_bytes,omitempty"`
	SHA256      string     `json:"sha256,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Undelivered string     `json:"undelivered,omitempty"` // the oldest callback that waits, and why
}

func viewFlow(f records.Flow) flowView {
	v := flowView{
		Flow: f.ID, Record: f.Record.String(), State: string(f.State), Wanted: string(f.Wanted), Reason: f.Reason,
		Profile: f.Profile, Dataset: f.Dataset, Attempts: f.Attempts, Epoch: f.Epoch,
		Bytes: f.Progress.Bytes, TotalBytes: f.Progress.Total, SHA256: hex.EncodeToString(f.Progress.SHA256),
		CreatedAt: f.CreatedAt, UpdatedAt: f.UpdatedAt,
	}
	if !f.EndedAt.IsZero() {
		v.EndedAt = &f.EndedAt
	}
	if f.Executor != (records.ExecutorID{}) {
		v.Executor = f.Executor.String()
	}
	return v
}

// withFlows runs f on the flows of the configured store, and says what is
// missing if it keeps none.
func (e *env) withFlows(ctx context.Context, c Config, f func(flows records.Flows) error) error {
	return e.withStore(ctx, c, func(s records.Store) error {
		flows, ok := flowsOf(s)
		if !ok {
			return errors.New("this store keeps no data flows")
		}
		fleet, err := s.Fleet(ctx)
		if err == nil && fleet.Schema < flowsSchema {
			err = fmt.Errorf("%w: data flows need schema %d, the store is at %d: run the migrations", records.ErrSchemaTooOld, flowsSchema, fleet.Schema)
		}
		if err != nil {
			return err
		}
		return f(flows)
	})
}

// Run implements the subcommand.
func (c *flowsListCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	if c.Limit < 1 || c.Limit > 1000 {
		return usageError{fmt.Errorf("--limit %d: want 1 to 1000", c.Limit)}
	}
	var page records.FlowPage
	err = e.withFlows(ctx, config, func(flows records.Flows) error {
		page, err = flows.ListFlows(ctx, records.FlowFilter{State: records.FlowState(c.State), After: c.After, Limit: c.Limit})
		return err
	})
	if err != nil {
		return err
	}
	views := make([]flowView, 0, len(page.Flows))
	for _, f := range page.Flows {
		views = append(views, viewFlow(f))
	}
	result := struct {
		Flows []flowView `json:"flows"`
		More  bool       `json:"more"`
		Next  string     `json:"next,omitempty"`
	}{views, page.More, page.Next}
	return e.show(result, func(w *text) {
		rows := make([][]cell, 0, len(views))
		for _, v := range views {
			row := words(harmless(v.Flow), v.State, harmless(v.Dataset), fmt.Sprint(v.Bytes), fmt.Sprint(v.Attempts), v.Executor, age(time.Since(v.CreatedAt)))
			row[1].colour = flowColour(v.State)
			rows = append(rows, row)
		}
		e.table(w, []string{"FLOW", "STATE", "DATASET", "BYTES", "ATTEMPTS", "EXECUTOR", "AGE"}, rows)
		if page.More {
			w.printf("more: --after %s\n", harmless(page.Next))
		}
	})
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
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsShowCmd) Help() string {
	return `Example:

  probate flows show tp-1`
}

// Run implements the subcommand.
func (c *flowsShowCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	var held records.HeldFlow
	err = e.withFlows(ctx, config, func(flows records.Flows) error {
		held, err = flows.LoadFlow(ctx, c.Flow)
		return err
	})
	if err != nil {
		return fmt.Errorf("flow %q: %w", c.Flow, err)
	}
	return e.showFlow(held)
}

func (e *env) showFlow(h records.HeldFlow) error {
	v := viewFlow(h.Flow)
	if h.InProgress() {
		v.Executor, v.ExecutorURL, v.Epoch = h.Fence.Executor.String(), h.URL, h.Fence.Epoch
	}
	if c := h.Callback; c != nil {
		v.Undelivered = fmt.Sprintf("%s, %d tries: %s", c.Event, c.Tries, c.Reason)
	}
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
	Reason   string        `required:"" help:"Why; the control plane's status says so."`
	Wait     time.Duration `help:"How long to wait for the bytes to stop." default:"30s"`
	Settings kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (flowsTerminateCmd) Help() string {
	return `What is wanted is written to the store. The node that moves the bytes sees it when it writes its progress, and stops; if
that node is dead, another takes the flow over in order to end it.

Example:

  probate flows terminate tp-1 --reason "wrong dataset"`
}

// Run implements the subcommand.
func (c *flowsTerminateCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, errNotStopped)
	defer cancel()
	var ended records.HeldFlow
	err = e.withFlows(ctx, config, func(flows records.Flows) error {
		ended, err = terminateFlow(ctx, flows, c.Flow, c.Reason)
		return err
	})
	if err != nil {
		return fmt.Errorf("flow %q: %w", c.Flow, err)
	}
	return e.showFlow(ended)
}

// errNotStopped: it will be, but nobody has said so yet.
var errNotStopped = errors.New("that it is to end is written down, and it has not ended yet")

// terminateFlow ends a flow that nobody runs, or has who runs it end it, and
// waits for that.
func terminateFlow(ctx context.Context, flows records.Flows, id, reason string) (records.HeldFlow, error) {
	attempt := records.NewToken()
	for look := time.NewTicker(100 * time.Millisecond); ; {
		h, err := flows.LoadFlow(ctx, id)
		switch {
		case err != nil:
			return h, err
		case h.Flow.State == records.FlowTerminated && (h.Flow.Reason == reason || h.Flow.Attempt == attempt):
			return h, nil
		case h.Flow.State.Terminal():
			return h, fmt.Errorf("it is %s, which is final", h.Flow.State)
		case h.Flow.Moves && h.Flow.State.Running():
			_, err = flows.WantFlow(ctx, id, records.FlowTerminated, reason)
		default:
			_, err = flows.MoveFlow(ctx, records.FlowMove{
				ID: id, Attempt: attempt, Version: h.Flow.Version, To: records.FlowTerminated, Reason: reason, Tokens: []byte{},
			})
		}
		if err != nil && !errors.Is(err, records.ErrFenced) {
			return h, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return h, context.Cause(ctx)
		}
	}
}
