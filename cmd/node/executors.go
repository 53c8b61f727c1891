package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
)

type executorsCmd struct {
	List  executorsListCmd  `cmd:"" help:"List the processes of the fleet."`
	Fence executorsFenceCmd `cmd:"" help:"Declare a process dead, so that what it runs can be taken over."`
}

type executorsListCmd struct {
	All      bool         `help:"Also those that have gone or were fenced."`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (executorsListCmd) Help() string {
	return `Examples:

  probate executors list
  probate executors list --all -o json`
}

// Run implements the subcommand.
func (c *executorsListCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	states := []records.ExecutorState{records.Active, records.Draining}
	if c.All {
		states = nil
	}
	var list []records.Executor
	err = e.withStore(ctx, config, func(s records.Store) error {
		list, err = s.ListExecutors(ctx, states...)
		return err
	})
	if err != nil {
		return err
	}
	views := make([]executorView, 0, len(list))
	for _, x := range list {
		views = append(views, viewExecutor(x))
	}
	return e.show(map[string]any{"executors": views}, func(w *text) {
		rows := make([][]cell, 0, len(views))
		for _, v := range views {
			heartbeat, attested := age(time.Duration(v.HeartbeatMS)*time.Millisecond), "no"
			if v.AttestedAt != nil {
				attested = age(time.Since(*v.AttestedAt)) + " ago"
			}
			row := words(v.Executor, harmless(v.Slot), v.State, v.Policy, heartbeat, attested, v.URL)
			row[2].colour = stateColour(v.State)
			if v.Stale && v.State == string(records.Active) {
				row[4].colour = red
			}
			rows = append(rows, row)
		}
		e.table(w, []string{"EXECUTOR", "SLOT", "STATE", "POLICY", "HEARTBEAT", "ATTESTED", "URL"}, rows)
	})
}

type executorsFenceCmd struct {
	Executor string       `arg:"" help:"The executor's id, as executors list shows it."`
	Force    bool         `help:"Whatever its lease: asserts that the process is dead."`
	Operator string       `help:"Who says so, for the record. Default: $$USER." placeholder:"NAME"`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (executorsFenceCmd) Help() string {
	return `A fence cannot be taken back. A process that was fenced and lives stops its work and registers anew.

Without --force only an executor whose lease has run out is fenced. With it any is: if its process is alive after all,
what it runs may take effect twice at services that do not refuse older fences.

Example:

  probate executors fence 6ba7b810-9dad-41d1-80b4-00c04fd430c8`
}

// Run implements the subcommand.
func (c *executorsFenceCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseExecutorID(c.Executor)
	if err != nil {
		return usageError{err}
	}
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	operator := c.Operator
	if operator == "" {
		operator = e.environ["USER"]
	}
	if operator == "" {
		operator = "unnamed operator"
	}
	var fenced records.Executor
	err = e.withStore(ctx, config, func(s records.Store) error {
		fenced, err = s.FenceByOperator(ctx, id, operator, c.Force)
		return err
	})
	if err != nil {
		return fmt.Errorf("fence %s: %w", id, err)
	}
	v := viewExecutor(fenced)
	return e.show(v, func(w *text) {
		w.printf("%s (slot %s) is %s", v.Executor, harmless(v.Slot), e.paint(stateColour(v.State), v.State))
		if v.FencedReason != "" {
			w.printf(", by %s: %s", v.FencedBy, v.FencedReason)
		}
		w.printf("\n")
	})
}
