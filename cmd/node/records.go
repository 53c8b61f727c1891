package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
)

type recordsCmd struct {
	List recordsListCmd `cmd:"" help:"List records, from the store."`
	Show recordsShowCmd `cmd:"" help:"Show one record, ask who executes it, and explain."`
}

type recordsListCmd struct {
	Realm     *string       `help:"Only of this realm."`
	Key       *string       `help:"Only with this Idempotency-Key."`
	Operation *string       `help:"Only of this operation."`
	State     string        `help:"Only in this state: ${enum}." enum:",in_progress,finalized,unknown,released" default:""`
	Executor  string        `help:"Only of this executor." placeholder:"ID"`
	OlderThan time.Duration `help:"Only begun at least so long ago." placeholder:"1h"`
	After     string        `help:"Go on after this record." placeholder:"ID"`
	Limit     int           `help:"How many at most." default:"50"`
	Settings  kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (recordsListCmd) Help() string {
	return `Records come in order of their ids; where there are more, the way to go on is printed.

Examples:

  probate records list --state unknown
  probate records list --key 8e03978e-40d5-43dd-bc93-6894a57f9324 -o json
  probate records list --state in_progress --older-than 10m`
}

// recordView is a record as JSON.
type recordView struct {
	Record      string     `json:"record"`
	State       string     `json:"state"`
	Operation   string     `json:"operation"`
	Resource    string     `json:"resource"`
	Realm       string     `json:"realm"`
	Key         string     `json:"key"`
	Executor    string     `json:"executor"`
	ExecutorURL string     `json:"executor_url"`
	Epoch       int64      `json:"epoch"`
	Takeovers   int        `json:"takeovers"`
	Status      int        `json:"status,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	FinalizedAt *time.Time `json:"finalized_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

func viewRecord(r records.Record) recordView {
	v := recordView{
		Record: r.ID.String(), State: string(r.State), Operation: r.Operation, Resource: r.Resource, Realm: r.Realm, Key: r.Key,
		Executor: r.Executor.String(), ExecutorURL: r.ExecutorURL, Epoch: r.Epoch, Takeovers: r.Takeovers, CreatedAt: r.CreatedAt.UTC(),
		FinalizedAt: instant(r.FinalizedAt), ExpiresAt: instant(r.ExpiresAt),
	}
	if r.Response != nil {
		v.Status = r.Response.Status
	}
	return v
}

// instant is a time, or nil if it has none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
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
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	f := records.Filter{
		Realm: c.Realm, Key: c.Key, Operation: c.Operation, State: records.State(c.State), OlderThan: c.OlderThan, Limit: c.Limit,
	}
	if err := c.parseIDs(&f); err != nil {
		return usageError{err}
	}
	if c.Limit < 1 {
		return usageError{fmt.Errorf("--limit %d: want 1 or more", c.Limit)}
	}
	var page records.Page
	err = e.withStore(ctx, config, func(s records.Store) error {
		page, err = listRecords(ctx, s, f)
		return err
	})
	if err != nil {
		return err
	}
	views := make([]recordView, 0, len(page.Records))
	for _, r := range page.Records {
		views = append(views, viewRecord(r))
	}
	result := struct {
		Records []recordView `json:"records"`
		More    bool         `json:"more"`
		Next    string       `json:"next,omitempty"`
	}{Records: views, More: page.More}
	if page.More {
		result.Next = page.Next.String()
	}
	return e.show(result, func(w *text) {
		rows := make([][]cell, 0, len(views))
		for _, v := range views {
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

// listRecords reads pages until the limit is reached or the store has no more.
// A page may be empty with more to come.
func listRecords(ctx context.Context, s records.Store, f records.Filter) (records.Page, error) {
	var all records.Page
	want := f.Limit
	for {
		f.Limit = min(want-len(all.Records), 1000)
		page, err := s.List(ctx, f)
		if err != nil {
			return all, err
		}
		all.Records = append(all.Records, page.Records...)
		all.More, all.Next, f.After = page.More, page.Next, page.Next
		if !page.More || len(all.Records) >= want {
			return all, nil
		}
	}
}
