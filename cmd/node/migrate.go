package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/sqlite"
)

type migrateCmd struct {
	Up      migrateUpCmd      `cmd:"" help:"Apply every migration that the store lacks."`
	Down    migrateDownCmd    `cmd:"" help:"Take back the last migration. The first one takes everything stored with it."`
	Status  migrateStatusCmd  `cmd:"" help:"Say how far the store is migrated, and change nothing."`
	Version migrateVersionCmd `cmd:"" help:"Print the number of the store's schema alone; 0: there is none."`
}

// Help is shown below the flags.
func (migrateCmd) Help() string {
	return `The stock golang-migrate tool does the same on the files in migrations/:

  migrate -path migrations -database "$DATABASE_URL" up

Behind a pooler, migrations need a direct connection. SQLite files migrate themselves when a node starts.

Examples:

  DATABASE_URL=postgres://probate@db/probate probate migrate up
  probate migrate status --store postgres://probate@db/probate -o json`
}

// schemaStatus is what is known of a store's schema.
type schemaStatus struct {
	Store     string `json:"store"`
	Schema    int    `json:"schema"` // 0: none
	Binary    int    `json:"binary"` // what this program brings
	MinBinary int    `json:"min_binary"`
	Cluster   string `json:"cluster"`
	Table     string `json:"table,omitempty"`
	Dirty     bool   `json:"dirty"`
	Advice    string `json:"advice,omitempty"`
}

func (e *env) readSchema(ctx context.Context, c Config) (schemaStatus, error) {
	st := schemaStatus{Store: c.storeName(), Binary: postgres.Schema}
	if _, embedded := sqlitePath(c.Store); embedded {
		st.Binary = sqlite.Schema
		return st, e.withStore(ctx, c, func(s records.Store) error {
			f, err := s.Fleet(ctx)
			st.Schema, st.MinBinary, st.Cluster = f.Schema, f.MinBinary, f.Cluster
			return err
		})
	}
	s, err := postgres.ReadStatus(ctx, c.Store)
	if err != nil {
		return st, err
	}
	st.Schema, st.MinBinary, st.Cluster, st.Table, st.Dirty = s.Fleet.Schema, s.Fleet.MinBinary, s.Fleet.Cluster, s.Table, s.Dirty
	switch {
	case s.Dirty:
		st.Advice = "a migration failed half-way: repair the schema, then set the version with the migrate tool"
	case st.Schema < st.Binary:
		st.Advice = "run: probate migrate up"
	case st.Binary < st.MinBinary:
		st.Advice = "install a newer probate here"
	}
	return st, nil
}

// showSchema reports what a migration led to.
func (e *env) showSchema(ctx context.Context, c Config) error {
	st, err := e.readSchema(ctx, c)
	if err != nil {
		return err
	}
	return e.show(st, func(w *text) {
		w.printf("store %s: schema %d, this program brings %d, cluster %q\n", st.Store, st.Schema, st.Binary, st.Cluster)
		if st.Advice != "" {
			w.printf("%s\n", st.Advice)
		}
	})
}

type migrateUpCmd struct {
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Run implements the subcommand.
func (c *migrateUpCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	if _, embedded := sqlitePath(config.Store); embedded {
		s, err := openStore(ctx, config, noLog, nil)
		if err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
	} else if err := postgres.Migrate(ctx, config.Store); err != nil {
		return err
	}
	return e.showSchema(ctx, config)
}

type migrateDownCmd struct {
	Yes      bool         `help:"Say that this is meant."`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Run implements the subcommand.
func (c *migrateDownCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	if _, embedded := sqlitePath(config.Store); embedded {
		return refusedError{errors.New("migrate down: a SQLite file is not taken back; stop its nodes and remove it with its -wal, -shm and -turn")}
	}
	if !c.Yes {
		return usageError{fmt.Errorf("migrate down takes back the last migration of %s, and what is stored with it: say --yes if that is meant", config.storeName())}
	}
	if err := postgres.Down(ctx, config.Store); err != nil {
		return err
	}
	return e.showSchema(ctx, config)
}

type migrateStatusCmd struct {
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Run implements the subcommand.
func (c *migrateStatusCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	return e.showSchema(ctx, config)
}

type migrateVersionCmd struct {
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Run implements the subcommand.
func (c *migrateVersionCmd) Run(ctx context.Context, e *env) error {
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	st, err := e.readSchema(ctx, config)
	if err != nil {
		return err
	}
	return e.show(map[string]int{"schema": st.Schema}, func(w *text) { w.printf("%d\n", st.Schema) })
}
