package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

type executorsCmd struct {
	List  executorsListCmd  `cmd:"" help:"List the processes of the fleet."`
	Show  executorsShowCmd  `cmd:"" help:"Show one process, what it has in progress, and explain."`
	Fence executorsFenceCmd `cmd:"" help:"Declare a process dead, so that what it runs can be taken over."`
}

type executorsListCmd struct {
	All      bool         `help:"Also those that have gone or were fenced."`
	Remote   Remote       `embed:""`
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
	var list api.ExecutorList
	err := e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodGet, "/v1/executors", url.Values{"all": {strconv.FormatBool(c.All)}}, nil, &list)
		},
		func(_ Config, s records.Store) (err error) {
			list, err = api.ListExecutors(ctx, s, c.All)
			return err
		})
	if err != nil {
		return err
	}
	return e.show(list, func(w *text) {
		rows := make([][]cell, 0, len(list.Executors))
		for _, v := range list.Executors {
			heartbeat, attested := age(time.Duration(v.HeartbeatMS)*time.Millisecond), "no"
			if v.AttestedAt != nil {
				attested = age(time.Since(*v.AttestedAt)) + " ago"
			}
			row := words(v.Executor, harmless(v.Slot), v.State, v.Policy, heartbeat, attested, harmless(v.URL))
			row[2].colour = stateColour(v.State)
			if v.Stale && v.State == string(records.Active) {
				row[4].colour = red
			}
			rows = append(rows, row)
		}
		e.table(w, []string{"EXECUTOR", "SLOT", "STATE", "POLICY", "HEARTBEAT", "ATTESTED", "URL"}, rows)
	})
}

type executorsShowCmd struct {
	Executor string       `arg:"" help:"The executor's id, as executors list shows it."`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (executorsShowCmd) Help() string {
	return `Example:

  probate executors show 6ba7b810-9dad-41d1-80b4-00c04fd430c8`
}

// Run implements the subcommand.
func (c *executorsShowCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseExecutorID(c.Executor)
	if err != nil {
		return usageError{err}
	}
	var report api.ExecutorReport
	err = e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodGet, "/v1/executors/"+id.String(), nil, nil, &report)
		},
		func(_ Config, s records.Store) (err error) {
			report, err = api.Reporter{Store: s}.Executor(ctx, id)
			return err
		})
	if err != nil {
		return fmt.Errorf("executor %s: %w", id, err)
	}
	return e.show(report, func(w *text) { writeExecutor(report, e, w) })
}

func writeExecutor(r api.ExecutorReport, e *env, w *text) {
	line := func(name, value string, c colour) { w.printf("%-12s %s\n", name, e.paint(c, value)) }
	v := r.Executor
	line("executor", v.Executor, plain)
	line("slot", harmless(v.Slot), plain)
	line("state", v.State, stateColour(v.State))
	line("url", harmless(v.URL), plain)
	line("policy", v.Policy, plain)
	line("heartbeat", fmt.Sprintf("%s ago, number %d; lease %s", age(time.Duration(v.HeartbeatMS)*time.Millisecond), v.Beat, time.Duration(v.LeaseTTLMS)*time.Millisecond), plain)
	if v.AttestedAt != nil {
		line("attested", v.AttestedAt.Format(time.RFC3339), plain)
	}
	if v.FencedAt != nil {
		line("fenced", v.FencedAt.Format(time.RFC3339)+" by "+v.FencedBy+": "+legible(v.FencedReason), red)
	}
	writeEvents(r.Events, w)
	w.printf("\n%s\n", legible(r.Explanation))
	if len(r.Records) == 0 {
		return
	}
	w.printf("\n")
	rows := make([][]cell, 0, len(r.Records))
	for _, x := range r.Records {
		rows = append(rows, words(x.Record, harmless(x.Operation), harmless(x.Realm), harmless(x.Key), age(time.Since(x.CreatedAt))))
	}
	e.table(w, []string{"RECORD", "OPERATION", "REALM", "KEY", "AGE"}, rows)
	if r.More {
		w.printf("more: probate records list --state in_progress --executor %s\n", v.Executor)
	}
}

type executorsFenceCmd struct {
	Executor string       `arg:"" help:"The executor's id, as executors list shows it."`
	Force    bool         `help:"Whatever its lease: asserts that the process is dead."`
	Reason   string       `required:"" help:"Why, for the audit."`
	Operator string       `help:"Who says so, straight on the store. Default: $$USER." placeholder:"NAME"`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (executorsFenceCmd) Help() string {
	return `A fence cannot be taken back. A process that was fenced and lives stops its work and registers anew.

Without --force only an executor whose lease has run out is fenced. With it any is: if its process is alive after all,
what it runs may take effect twice at services that do not refuse older fences.

Example:

  probate executors fence 6ba7b810-9dad-41d1-80b4-00c04fd430c8 --reason "its host is off, INC-42"`
}

// Run implements the subcommand.
func (c *executorsFenceCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseExecutorID(c.Executor)
	if err != nil {
		return usageError{err}
	}
	var v api.ExecutorView
	err = e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			var report api.ExecutorReport
			err := node.call(ctx, http.MethodPost, "/v1/executors/"+id.String()+"/fence", nil, map[string]any{"reason": c.Reason, "force": c.Force}, &report)
			v = report.Executor
			return err
		},
		func(_ Config, s records.Store) error {
			fenced, err := s.FenceByOperator(ctx, records.Condemnation{Executor: id, Actor: e.operator(c.Operator), Reason: c.Reason, Force: c.Force})
			v = api.ViewExecutor(fenced)
			return err
		})
	if err != nil {
		return fmt.Errorf("fence %s: %w", id, err)
	}
	return e.show(v, func(w *text) {
		w.printf("%s (slot %s) is %s", v.Executor, harmless(v.Slot), e.paint(stateColour(v.State), v.State))
		if v.FencedReason != "" {
			w.printf(", by %s: %s", v.FencedBy, legible(v.FencedReason))
		}
		w.printf("\n")
	})
}
