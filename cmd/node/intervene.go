package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

// Intervention is what every command that changes a record is told.
type Intervention struct {
	Record   string       `arg:"" help:"The record's id: 64 hexadecimal digits, as in operation_ref."`
	Reason   string       `required:"" help:"Why, for the audit."`
	Epoch    int64        `help:"The epoch at which you saw the record. Default: the one at which it is found now." placeholder:"N"`
	Operator string       `help:"Who says so, straight on the store. Default: $$USER." placeholder:"NAME"`
	Remote   Remote       `embed:""`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

type recordsReleaseCmd struct {
	Intervention `embed:""`
}

// Help is shown below the flags.
func (recordsReleaseCmd) Help() string {
	return `You vouch that nothing was done, or that doing it again is right: the next request with the key is executed. This is for a record
that is unknown, or in progress of an executor that was fenced or has gone. Anything else is refused, and so is a record
that has changed since.

Example:

  probate records release 5b1f7a… --reason "the provider has no such payment, INC-42"`
}

// Run implements the subcommand.
func (c *recordsReleaseCmd) Run(ctx context.Context, e *env) error {
	return c.change(ctx, e, "release", nil, func(ctx context.Context, s records.Store, i records.Intervention) (records.Record, error) {
		return s.ReleaseByOperator(ctx, i)
	})
}

type recordsResolveCmd struct {
	Intervention `embed:""`
	Status       int           `required:"" help:"Status of the response that duplicates get from now on." placeholder:"201"`
	Header       []string      `sep:"none" help:"A header of it, as Name: value; again for more." placeholder:"NAME: VALUE"`
	Body         string        `help:"Its body." xor:"body"`
	BodyFile     string        `help:"A file with its body; - for standard input." xor:"body" placeholder:"FILE"`
	Retention    time.Duration `help:"How long it is replayed." default:"24h"`
}

// Help is shown below the flags.
func (recordsResolveCmd) Help() string {
	return `You have found out what came of a record that is unknown, and say which response duplicates are to get. Nothing is executed.
A finalized record is never changed.

Example:

  probate records resolve 5b1f7a… --reason "found at the provider as pay_7, INC-42" \
    --status 201 --header "Content-Type: application/json" --body '{"id":"pay_7"}'`
}

// Run implements the subcommand.
func (c *recordsResolveCmd) Run(ctx context.Context, e *env) error {
	d, err := c.document(e)
	if err != nil {
		return usageError{err}
	}
	o, err := api.Resolution(d, c.Retention.String())
	if err != nil {
		return usageError{err}
	}
	more := map[string]any{"response": d, "retention": c.Retention.String()}
	return c.change(ctx, e, "resolve", more, func(ctx context.Context, s records.Store, i records.Intervention) (records.Record, error) {
		return s.ResolveByOperator(ctx, i, o)
	})
}

func (c *recordsResolveCmd) document(e *env) (api.ResponseDocument, error) {
	d := api.ResponseDocument{Status: c.Status, Headers: map[string][]string{}}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return d, fmt.Errorf("--header %q: want a name, a colon and a value", line)
		}
		d.Headers[name] = append(d.Headers[name], strings.TrimSpace(value))
	}
	body := []byte(c.Body)
	var err error
	switch c.BodyFile {
	case "":
	case "-":
		body, err = io.ReadAll(e.in)
	default:
		body, err = os.ReadFile(c.BodyFile)
	}
	if err != nil {
		return d, fmt.Errorf("read body: %w", err)
	}
	coded := base64.StdEncoding.EncodeToString(body)
	d.BodyBase64 = &coded
	return d, nil
}

// change makes a change through a node, with more in its order, or straight on
// the store.
func (c *Intervention) change(ctx context.Context, e *env, action string, more map[string]any,
	change func(ctx context.Context, s records.Store, i records.Intervention) (records.Record, error),
) error {
	id, err := records.ParseID(c.Record)
	if err != nil {
		return usageError{err}
	}
	var report api.RecordReport
	err = e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) error { return c.order(ctx, node, id, action, more, &report) },
		func(_ Config, s records.Store) error {
			i := records.Intervention{ID: id, Epoch: c.Epoch, Actor: e.operator(c.Operator), Reason: c.Reason}
			if i.Epoch == 0 {
				h, _, err := api.Outline(ctx, s, id)
				if err != nil {
					return err
				}
				i.Epoch = h.Record.Epoch
			}
			if _, err := change(ctx, s, i); err != nil {
				return err
			}
			report, err = api.Reporter{Store: s}.Record(ctx, id)
			return err
		})
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, id, err)
	}
	return e.show(report, func(w *text) { writeRecord(report, e, w) })
}

// order gives a node an order about a record as it is found now, unless the
// operator has said how it was seen.
func (c *Intervention) order(ctx context.Context, node *adminClient, id records.ID, action string, more map[string]any, into any) error {
	path, send := "/v1/records/"+id.String(), map[string]any{"reason": c.Reason, "epoch": c.Epoch}
	if c.Epoch == 0 {
		var now api.RecordReport
		if err := node.call(ctx, http.MethodGet, path, nil, nil, &now); err != nil {
			return err
		}
		send["epoch"] = now.Record.Epoch
	}
	maps.Copy(send, more)
	return node.call(ctx, http.MethodPost, path+"/"+action, nil, send, into)
}

type recordsReconcileCmd struct {
	Intervention `embed:""`
}

// Help is shown below the flags.
func (recordsReconcileCmd) Help() string {
	return `A node whose configuration has the record's route takes the record and asks the route's reconciler: applied is finalized with the
response that was found, not applied frees the key, and nothing is executed. This is for a record that is unknown, or
in progress of a dead executor; a dead one that no node has found out about yet is probed, confirmed and fenced first.

Without --node the node of the configuration file is asked.

Example:

  probate records reconcile 5b1f7a… --reason "the provider is back, INC-42"`
}

var errNotClaimed = errors.New("nobody was asked: the record is not to be had from its owner")

// Run implements the subcommand.
func (c *recordsReconcileCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseID(c.Record)
	if err != nil {
		return usageError{err}
	}
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	node, err := c.Remote.open(e, config, config.advertised(config.Internal.Listen))
	if err != nil {
		return err
	}
	defer node.close()
	var came api.Reconciled
	if err := c.order(ctx, node, id, "reconcile", nil, &came); err != nil {
		return fmt.Errorf("reconcile %s: %w", id, err)
	}
	err = e.show(came, func(w *text) {
		switch {
		case !came.Claimed:
			w.printf("nobody was asked. %s\n\n", came.Why)
		case !came.Over:
			w.printf("found so far: %s; the node goes on asking\n\n", orNothing(came.Finding))
		default:
			w.printf("found: %s\n\n", orNothing(came.Finding))
		}
		writeRecord(came.Now, e, w)
	})
	if err == nil && !came.Claimed {
		return refusedError{errNotClaimed}
	}
	return err
}

func orNothing(finding string) string {
	if finding == "" {
		return "nothing"
	}
	return strings.ReplaceAll(finding, "_", " ")
}

type recordsEraseCmd struct {
	Realm     string       `required:"" help:"The realm; empty where routes have none."`
	Principal string       `required:"" help:"The principal, as its route names it: none, trusted_header:NAME, authorize:NAME, func:NAME, jwt:JSON or headers:JSON." placeholder:"WHO"`
	Reason    string       `required:"" help:"Why, for the audit."`
	Operator  string       `help:"Who says so, straight on the store. Default: $$USER." placeholder:"NAME"`
	Remote    Remote       `embed:""`
	Settings  kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (recordsEraseCmd) Help() string {
	return `Keys, resources, stored requests, headers and bodies of the principal's records are forgotten. What keeps a late duplicate from
being executed again stays until it expires; such a duplicate is told that its response was not kept. Records in
progress stay as they are, and are counted: ask again when they are done.

Examples:

  probate records erase --realm shop --principal trusted_header:alice --reason "asked by alice, DSR-7"
  probate records erase --realm shop --principal 'jwt:{"iss":"https://idp.example","sub":"7"}' --reason DSR-8`
}

// Run implements the subcommand.
func (c *recordsEraseCmd) Run(ctx context.Context, e *env) error {
	principal, err := api.ParsePrincipal(c.Principal)
	if err != nil {
		return usageError{fmt.Errorf("--principal: %w", err)}
	}
	var done api.Erased
	err = e.either(ctx, c.Remote, c.Settings,
		func(node *adminClient) (err error) {
			done, err = c.through(ctx, node)
			return err
		},
		func(_ Config, s records.Store) (err error) {
			done, err = api.Erase(ctx, s, records.Erasure{
				Realm: c.Realm, Principal: principal, Actor: e.operator(c.Operator), Reason: c.Reason,
			}, math.MaxInt)
			return err
		})
	if err != nil {
		return fmt.Errorf("erase, after %d records: %w", done.Erased, err)
	}
	return e.show(done, func(w *text) {
		w.printf("erased what %d records said; %d are in progress and stay\n", done.Erased, done.InProgress)
	})
}

// through asks a node until it has been through all records.
func (c *recordsEraseCmd) through(ctx context.Context, node *adminClient) (all api.Erased, err error) {
	send := map[string]any{"realm": c.Realm, "principal": c.Principal, "reason": c.Reason}
	for {
		var done api.Erased
		if err := node.call(ctx, http.MethodPost, "/v1/principals/erase", nil, send, &done); err != nil {
			return all, err
		}
		all.Erased, all.InProgress = all.Erased+done.Erased, all.InProgress+done.InProgress
		if !done.More {
			return all, nil
		}
		send["after"] = done.Next
	}
}
