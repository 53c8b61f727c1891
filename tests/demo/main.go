// Command demo plays a crash on the embedded store and prints what the store
// decides: reserve, duplicate, fence, take over, replay.
//
// # Promises
//
// Every line it prints was answered by the store just before. It ends with
// exit code 1 if an answer is not the one that the contract of package records
// demands. The store is a file in a temporary folder, gone at the end.
//
// # Not promised
//
// Both nodes are one process and nobody is asked over a network: that A has
// fallen silent is a claim of this script.
//
// # Imports
//
// records and records/sqlite.
//
// # Reading order
//
// story.go, main.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/probate-dev/probate/records/sqlite"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run opens a fresh store, plays the story on it and takes it away.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "probate-demo-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "demo.db"), Cluster: "demo"})
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return play(ctx, store, out)
}
