// Package migrations holds the schema of both stores as files for
// golang-migrate, so that the stock tool pointed at this folder and our own
// binary apply the same text.
//
// # Promises
//
// A number means the same schema in both folders. Files that were released are
// never changed; a change is a new number with an up and a down. Every up writes
// its number, and the oldest binary that may still run, into the fleet row,
// because that row and not the migration tool's table is what a node checks when
// it starts. The PostgreSQL files can be applied again and then change nothing.
//
// # Imports
//
// The standard library's embed.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed *.sql sqlite/*.sql
var files embed.FS

// Postgres holds the files for PostgreSQL, SQLite those for SQLite.
var (
	Postgres fs.FS = files
	SQLite         = folder("sqlite")
)

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // only for a malformed name, so never
	}
	return sub
}
