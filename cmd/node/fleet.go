package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
)

type fleetCmd struct {
	Rekey fleetRekeyCmd `cmd:"" help:"Give a restored copy of a store a cluster name of its own."`
}

type fleetRekeyCmd struct {
	From     string       `arg:"" help:"The cluster that the store belongs to now."`
	To       string       `arg:"" help:"The cluster that it is to belong to."`
	Operator string       `help:"Who says so, for the audit. Default: $$USER." placeholder:"NAME"`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (fleetRekeyCmd) Help() string {
	return `A copy of a store must not join the fleet of the original: its nodes would be taken for the original's.
No node may be running on the copy.

Example:

  probate fleet rekey payments-eu payments-staging --store postgres://probate@staging/probate`
}

// Run implements the subcommand.
func (c *fleetRekeyCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	config.Cluster = c.From
	err = e.withStore(ctx, config, func(s records.Store) error {
		running, err := s.ListExecutors(ctx, records.Active, records.Draining)
		if err != nil {
			return err
		}
		for _, x := range running {
			if !x.Stale() {
				return refusedError{fmt.Errorf("executor %s in slot %s sent a heartbeat %s ago: stop it first", x.ID, x.Slot, age(x.HeartbeatAge))}
			}
		}
		return s.Rekey(ctx, c.From, c.To, e.operator(c.Operator))
	})
	if err != nil {
		return fmt.Errorf("rekey: %w", err)
	}
	return e.show(map[string]string{"from": c.From, "cluster": c.To}, func(w *text) {
		w.printf("store %s belongs to cluster %q now: say cluster: %s in the configuration of its nodes\n", config.storeName(), c.To, c.To)
	})
}
