//go:build !linux && !darwin

package sqlite

import "context"

// turn does nothing here: processes compete for SQLite's own lock.
type turn struct{}

func openTurn(string) (*turn, error)          { return &turn{}, nil }
func (t *turn) acquire(context.Context) error { return nil }
func (t *turn) release()                      {}
func (t *turn) close() error                  { return nil }
