package records_test

import (
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestState(t *testing.T) {
	states := []records.State{records.InProgress, records.Finalized, records.Unknown, records.Released}
	legal := map[[2]records.State]bool{
		{records.InProgress, records.InProgress}: true, // a take-over
		{records.InProgress, records.Finalized}:  true,
		{records.InProgress, records.Unknown}:    true,
		{records.InProgress, records.Released}:   true,
		{records.Finalized, records.InProgress}:  true, // claimed anew, forgotten
		{records.Unknown, records.InProgress}:    true, // or for a reconciler
		{records.Released, records.InProgress}:   true,
	}
	t.Run("MovesAsTheProtocolSays", func(t *testing.T) {
		for _, from := range states {
			for _, to := range states {
				if got, want := from.CanBecome(to), legal[[2]records.State{from, to}]; got != want {
					t.Errorf("%s can become %s: %t, want %t", from, to, got, want)
				}
			}
		}
	})
	t.Run("AFinalizedRecordNeverChangesItsAnswer", func(t *testing.T) {
		for _, to := range []records.State{records.Finalized, records.Unknown, records.Released} {
			if records.Finalized.CanBecome(to) {
				t.Errorf("finalized can become %s", to)
			}
		}
	})
	t.Run("KnowsWhatIsNoState", func(t *testing.T) {
		for _, s := range states {
			if !s.Valid() {
				t.Errorf("%s is no state", s)
			}
		}
		for _, s := range []records.State{"", "lost", "In_progress", "active"} {
			if s.Valid() || s.CanBecome(records.InProgress) || records.InProgress.CanBecome(s) {
				t.Errorf("%q is taken for a state", s)
			}
		}
	})
}

func TestExecutorState(t *testing.T) {
	states := []records.ExecutorState{records.Active, records.Draining, records.Gone, records.Fenced}
	legal := map[[2]records.ExecutorState]bool{
		{records.Active, records.Draining}: true,
		{records.Active, records.Fenced}:   true,
		{records.Draining, records.Gone}:   true,
		{records.Draining, records.Fenced}: true,
	}
	t.Run("MovesAsTheProtocolSays", func(t *testing.T) {
		for _, from := range states {
			for _, to := range states {
				if got, want := from.CanBecome(to), legal[[2]records.ExecutorState{from, to}]; got != want {
					t.Errorf("%s can become %s: %t, want %t", from, to, got, want)
				}
			}
		}
	})
	t.Run("WhatIsTerminalMovesNowhere", func(t *testing.T) {
		for _, s := range states {
			moves := 0
			for _, to := range states {
				if s.CanBecome(to) {
					moves++
				}
			}
			if s.Terminal() != (moves == 0) {
				t.Errorf("%s has %d moves, terminal is %t", s, moves, s.Terminal())
			}
		}
	})
	t.Run("KnowsWhatIsNoState", func(t *testing.T) {
		for _, s := range states {
			if !s.Valid() {
				t.Errorf("%s is no state", s)
			}
		}
		for _, s := range []records.ExecutorState{"", "dead", "in_progress"} {
			if s.Valid() || s.Terminal() || s.CanBecome(records.Fenced) {
				t.Errorf("%q is taken for a state", s)
			}
		}
	})
}
