package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

type purgeCmd struct {
	Batch    int          `help:"Records in one statement." default:"1000"`
	Reason   string       `help:"Why, for the audit." default:"asked for by hand"`
	Operator string       `help:"Who says so. Default: $$USER." placeholder:"NAME"`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (purgeCmd) Help() string {
	return `Nodes purge by themselves every takeover.purge_every. This is for a store whose nodes are stopped, or after a long
pause. What is in progress is never purged. The audit says who purged how many.

Example:

  probate purge --store postgres://probate@db/probate`
}

// Run implements the subcommand.
func (c *purgeCmd) Run(ctx context.Context, e *env) error {
	if c.Batch < 1 || c.Batch > 100_000 {
		return usageError{fmt.Errorf("--batch %d: want 1 to 100000", c.Batch)}
	}
	if err := records.ValidateGrounds(c.Reason); err != nil {
		return usageError{err}
	}
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	var purged api.Purged
	err = e.withStore(ctx, config, func(s records.Store) error {
		purged, err = api.Purge(ctx, s, c.Batch, e.operator(c.Operator), c.Reason)
		return err
	})
	if err != nil {
		return fmt.Errorf("purge, after %d records: %w", purged.Records, err)
	}
	return e.show(purged, func(w *text) {
		w.printf("purged %d records and %d executors\n", purged.Records, purged.Executors)
	})
}
