package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

type recordsCmd struct {
	List      recordsListCmd      `cmd:"" help:"List records, from the store."`
	Show      recordsShowCmd      `cmd:"" help:"Show one record, ask who executes it, and explain."`
	Release   recordsReleaseCmd   `cmd:"" help:"Free a key: nothing was done, or doing it again is right."`
	Resolve   recordsResolveCmd   `cmd:"" help:"Say what the outcome of an unknown record was."`
	Reconcile recordsReconcileCmd `cmd:"" help:"Have a node ask the reconciler what became of a record."`
	Erase     recordsEraseCmd     `cmd:"" help:"Forget what a principal's records say."`
}

type recordsListCmd struct {
	Realm     *string       `help:"Only of this realm."`
	Key       *string       `help:"Only with this Idempotency-Key."`
	Operation *string       `help:"Only of this operation."`
	State     string        `help:"Only in this state: in_progress, finalized, unknown or released." enum:",in_progress,finalized,unknown,released" default:""`
	Executor  string        `help:"Only of this executor." placeholder:"ID"`
	OlderThan time.Duration `help:"Only begun at least so long ago." placeholder:"1h"`
	After     string        `help:"Go on after this record." placeholder:"ID"`
	Limit     int           `help:"How many at most." default:"50"`
	Remote    Remote        `embed:""`
	Settings  kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (recordsListCmd) Help() string {
	return `Records come in order of their ids; where there are more, the way to go on is printed. Pages do not drift: what is made or
ends meanwhile moves nothing from one page to another.

Examples:

  probate records list --state unknown
  probate records list --key 8e03978e-40d5-43dd-bc93-6894a57f9324 -o json
  probate records list --state in_progress --older-than 10m`
}

func stateColour(s string) colour {
	switch s {
	case string(records.Finalized), string(records.Active):
		return green
	case string(records.Unknown), string(records.Fenced):
		return red
	case string(records.InProgress), string(records.Draining):
		return yellow
	}
	return plain
}

// Run implements the subcommand.
func (c *recordsListCmd) Run(ctx context.Context, e *env) error {
	f := records.Filter{Realm: c.Realm, Key: c.Key, Operation: c.Operation, State: records.State(c.State), OlderThan: c.OlderThan}
	if err := c.parseIDs(&f); err != nil {
		return usageError{err}
	}
	if c.Limit < 1 {
		return usageError{fmt.Errorf("--limit %d: want 1 or more", c.Limit)}
	}
	var result api.RecordPage
	err := e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodGet, "/v1/records", c.query(), nil, &result)
		},
		func(_ Config, s records.Store) (err error) {
			result, err = api.ListRecords(ctx, s, f, c.Limit, math.MaxInt)
			return err
		})
	if err != nil {
		return err
	}
	return e.show(result, func(w *text) {
		rows := make([][]cell, 0, len(result.Records))
		for _, v := range result.Records {
			row := words(v.Record, v.State, harmless(v.Operation), harmless(v.Realm), harmless(v.Key), v.Executor, age(time.Since(v.CreatedAt)))
			row[1].colour = stateColour(v.State)
			rows = append(rows, row)
		}
		e.table(w, []string{"RECORD", "STATE", "OPERATION", "REALM", "KEY", "EXECUTOR", "AGE"}, rows)
		if result.More {
			w.printf("more: --after %s\n", result.Next)
		}
	})
}

func (c *recordsListCmd) parseIDs(f *records.Filter) (err error) {
	if c.Executor != "" {
		if f.Executor, err = records.ParseExecutorID(c.Executor); err != nil {
			return fmt.Errorf("--executor: %w", err)
		}
	}
	if c.After != "" {
		if f.After, err = records.ParseID(c.After); err != nil {
			return fmt.Errorf("--after: %w", err)
		}
	}
	return nil
}

// query is the same for a node. A node gives a thousand records at most.
func (c *recordsListCmd) query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(min(c.Limit, 1000))}}
	for name, word := range map[string]*string{"realm": c.Realm, "key": c.Key, "operation": c.Operation} {
		if word != nil {
			q.Set(name, *word)
		}
	}
	for name, word := range map[string]string{"state": c.State, "executor": c.Executor, "after": c.After} {
		if word != "" {
			q.Set(name, word)
		}
	}
	if c.OlderThan > 0 {
		q.Set("older_than", c.OlderThan.String())
	}
	return q
}
