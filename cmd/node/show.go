package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

type recordsShowCmd struct {
	Record   string       `arg:"" help:"The record's id: 64 hexadecimal digits, as in operation_ref."`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (recordsShowCmd) Help() string {
	return `The owner is asked from this host, as any node would ask it, so this host must be able to reach the nodes' internal listeners;
with --node that node asks, and says how many duplicates wait on it.

Example:

  probate records show 5b1f7a…  # operation_ref of the answer that a client got`
}

// Run implements the subcommand.
func (c *recordsShowCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseID(c.Record)
	if err != nil {
		return usageError{err}
	}
	var report api.RecordReport
	err = e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error {
			return node.call(ctx, http.MethodGet, "/v1/records/"+id.String(), nil, nil, &report)
		},
		func(config Config, s records.Store) (err error) {
			report, err = reporter(config, s).Record(ctx, id)
			return err
		})
	if errors.Is(err, records.ErrNotFound) {
		return fmt.Errorf("record %s: %w: it was never made here, or was purged after its retention", id, records.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return e.show(report, func(w *text) { writeRecord(report, e, w) })
}

// reporter finds out about records and executors from this host.
func reporter(config Config, s records.Store) api.Reporter {
	return api.Reporter{Store: s, Takeovers: config.Takeover.Takeovers, Ask: func(ctx context.Context, h records.Held) (api.Sight, error) {
		seen, err := ask(ctx, config, s, h.Executor, h.Record.ID, h.Record.Epoch)
		return sightOf(seen), err
	}}
}

// sightOf is what a probe has shown, in words.
func sightOf(o probe.Observation) api.Sight {
	s := api.Sight{Verdict: o.Verdict.String()}
	if o.Err != nil {
		s.Reason = o.Err.Error()
	}
	return s
}

// ask asks an executor from here, as another node would.
func ask(ctx context.Context, config Config, s records.Store, x records.Executor, id records.ID, epoch int64) (probe.Observation, error) {
	t, err := config.Internal.TLS.load()
	if err != nil {
		return probe.Observation{}, configError{err}
	}
	known, err := s.ListExecutors(ctx, records.Active, records.Draining)
	if err != nil {
		return probe.Observation{}, err
	}
	asker, err := newAsker(config, t, func(id records.ExecutorID) (records.Executor, bool) {
		for _, k := range known {
			if k.ID == id {
				return k, true
			}
		}
		return records.Executor{}, false
	})
	if err != nil {
		return probe.Observation{}, configError{err}
	}
	defer func() { _ = asker.Close() }() // it has no error
	return asker.Probe(ctx, x, id, epoch), nil
}

// writeRecord writes a report for a person.
func writeRecord(r api.RecordReport, e *env, w *text) {
	line := func(name, value string, c colour) { w.printf("%-12s %s\n", name, e.paint(c, value)) }
	v := r.Record
	line("record", v.Record, plain)
	line("state", v.State, stateColour(v.State))
	line("operation", harmless(v.Operation), plain)
	line("resource", harmless(v.Resource), plain)
	line("realm", harmless(v.Realm), plain)
	line("key", harmless(v.Key), plain)
	line("epoch", fmt.Sprint(v.Epoch), plain)
	line("take-overs", fmt.Sprint(v.Takeovers), plain)
	line("begun", v.CreatedAt.Format(time.RFC3339)+", "+age(time.Since(v.CreatedAt))+" ago", plain)
	if v.FinalizedAt != nil {
		line("ended", v.FinalizedAt.Format(time.RFC3339), plain)
	}
	if v.ExpiresAt != nil {
		line("expires", v.ExpiresAt.Format(time.RFC3339), plain)
	}
	if v.Status != 0 {
		line("answer", fmt.Sprint(v.Status), plain)
	}
	line("owner", v.Executor+" at "+harmless(v.ExecutorURL), plain)
	if x := r.Owner; x != nil {
		line("", fmt.Sprintf("slot %s, %s, last heartbeat %s ago", harmless(x.Slot), x.State, age(time.Duration(x.HeartbeatMS)*time.Millisecond)), stateColour(x.State))
		if x.FencedReason != "" {
			line("", "fenced by "+x.FencedBy+": "+legible(x.FencedReason), plain)
		}
	}
	if r.Verdict != "" {
		line("asked", legible(strings.TrimSuffix(r.Verdict+": "+r.Why, ": ")), plain)
	}
	if r.Waiters != nil {
		line("waiting", fmt.Sprintf("%d on this node", *r.Waiters), plain)
	}
	writeEvents(r.Events, w)
	w.printf("\n%s\n", legible(r.Explanation))
}

// writeEvents writes lines of the audit.
func writeEvents(all []api.EventView, w *text) {
	name := "events"
	for _, v := range all {
		what := strings.ReplaceAll(v.Kind, "_", " ")
		if v.Before != "" || v.After != "" {
			what += ", " + v.Before + " → " + v.After
		}
		if v.Actor != "" {
			what += ", by " + v.Actor
		}
		if v.Reason != "" {
			what += ": " + v.Reason
		}
		w.printf("%-12s %s %s\n", name, v.At.Format(time.RFC3339), legible(what))
		name = ""
	}
}
