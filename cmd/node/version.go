package main

import (
	"runtime"
	"runtime/debug"

	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/sqlite"
)

type versionCmd struct{}

// Run implements the subcommand.
func (versionCmd) Run(e *env) error {
	v := struct {
		Version      string `json:"version"`
		Go           string `json:"go"`
		Platform     string `json:"platform"`
		Schema       int    `json:"schema"`
		OldestSchema int    `json:"oldest_schema"`
		SQLiteSchema int    `json:"sqlite_schema"`
	}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, postgres.Schema, postgres.OldestSchema, sqlite.Schema}
	return e.show(v, func(w *text) {
		w.printf("probate %s, %s %s\n", v.Version, v.Go, v.Platform)
		w.printf("schema: PostgreSQL %d to %d, SQLite %d\n", v.OldestSchema, v.Schema, v.SQLiteSchema)
	})
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
